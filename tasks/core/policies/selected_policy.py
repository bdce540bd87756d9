"""The selection, the scores and the weights of a run: whoever joins them has them of one policy.

They can be of several: a run that was stopped between two of the stages, or `dvc freeze`, leaves some of them old.
"""

from collections.abc import Iterator

from tasks.core.config.splits import TEST_SPLITS
from tasks.core.policies.checkpoint_files import require_evaluated_policy
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Scores, Selection


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
    """Yield weights, and those scores that there are, that are not of the policy which was selected."""
    selection = read_document(layout.selection, Selection)
    try:
        require_evaluated_policy(layout.policy(selection.iteration), selection)
    except ArtifactError as error:
        yield str(error)
    for path in (layout.score(split) for split in TEST_SPLITS):
        if not path.exists():
            continue
        scores = read_document(path, Scores)
        if (scores.iteration, scores.adapter_digest) != (selection.iteration, selection.adapter_digest):
            yield (
                f"{path}: the scores are of {scores.iteration} ({scores.adapter_digest[:12]}...), but "
                f"{selection.iteration} ({selection.adapter_digest[:12]}...) was selected; run `dvc repro`"
            )
