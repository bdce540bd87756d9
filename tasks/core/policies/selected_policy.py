"""The selection, the scores and the weights of a run: whoever joins them has them of one policy.

They can be of several: a run that was stopped between two of the stages, or `dvc freeze`, leaves some of them old.
"""

from collections.abc import Iterator
from pathlib import Path

from tasks.core.config.splits import TEST_SPLITS
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import of_other_knobs
from tasks.core.records.scores import Candidate, Scores, Selection


def require_evaluated_policy(folder: Path, chosen: Candidate) -> None:
    """Raise ArtifactError when the weights in `folder` are not those that were evaluated as `chosen`."""
    present = policy_digest(folder)
    if present != chosen.adapter_digest:
        raise ArtifactError(
            f"{folder}: the weights of {chosen.iteration} ({present[:12]}...) are not those that were evaluated on "
            f"dev ({chosen.adapter_digest[:12]}...); restore them with `dvc checkout` or run `dvc repro`"
        )


def read_selection_and_scores(layout: Layout) -> tuple[Selection, list[Scores]]:
    """Return the selection and the scores of the test splits.

    Raises ArtifactError where one is missing or broken, or where they and the weights are not of one policy.
    """
    selection = read_document(layout.selection, Selection)
    scores = [read_document(layout.score(split), Scores) for split in TEST_SPLITS]
    for line in of_other_policies(layout):
        raise ArtifactError(line)
    return selection, scores


def of_other_policies(layout: Layout) -> Iterator[str]:
    """Yield weights, and those scores that there are, of another policy than was selected or of other knobs."""
    selection = read_document(layout.selection, Selection)
    try:
        require_evaluated_policy(layout.policy(selection.iteration), selection)
    except ArtifactError as error:
        yield str(error)
    scored = [split for split in TEST_SPLITS if layout.score(split).exists()]
    yield from of_other_knobs(
        layout,
        [("prepare_policy", ""), ("update_policy", selection.iteration), *(("score", split) for split in scored)],
    )
    for path in map(layout.score, scored):
        scores = read_document(path, Scores)
        if (scores.iteration, scores.adapter_digest) != (selection.iteration, selection.adapter_digest):
            yield (
                f"{path}: the scores are of {scores.iteration} ({scores.adapter_digest[:12]}...), but "
                f"{selection.iteration} ({selection.adapter_digest[:12]}...) was selected; run `dvc repro`"
            )
