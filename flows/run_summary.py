"""The end of a run in a few lines: scores with their standard errors, and where everything is."""

import time
from collections.abc import Iterator
from pathlib import Path

from tasks.core.config.params import Params, ParamsError
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.lineage.mlflow_store import LineageError, open_store
from tasks.core.processes.addresses import without_credentials
from tasks.core.processes.running import pipeline_process
from tasks.core.processes.shown_work import duration
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError, read_json
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tasks.core.records.scores import Scores
from tasks.core.records.training import AdvantageSummary


def print_run_summary(root: Path) -> None:
    """Print the summary of the finished run at `root`, or nothing where the run is not finished."""
    layout = Layout(root)
    try:
        lines = [*summary_lines(layout, recorded_params(layout), time.time() - pipeline_process().started_at)]
    except (ArtifactError, ParamsError):
        return
    print("\n".join(lines))


def summary_lines(layout: Layout, params: Params, seconds: float) -> Iterator[str]:
    """Yield the lines; `seconds` is how long the command took. Raises ArtifactError where the run is not finished."""
    scores = [read_document(layout.score(split), Scores) for split in TEST_SPLITS]
    record = read_json(layout.lineage)
    yield f"{params.world.name}: the policy of iteration {scores[0].iteration} was selected, of {params.iterations}"
    yield f"{'percent, ± standard error':26}{'base':>14}{'selected':>15}{'gain':>15}"
    for score in scores:
        for name in ("tgc", "sgc"):
            yield _row(score, name)
    yield f"report   {(layout.report / 'index.html').relative_to(layout.root)} (`loopline report` opens it)"
    yield from _recorded_in(layout.root, params, str(record["pipeline_digest"]))
    yield from _nothing_learned(layout, params)
    yield f"time     {duration(seconds)}, this command"


def _nothing_learned(layout: Layout, params: Params) -> Iterator[str]:
    """Yield a warning where the rollouts of every task were equally good in every iteration: nothing was learned."""
    found = [read_document(layout.advantage_summary(key), AdvantageSummary) for key in params.dag.collected]
    if found and all(summary.group_return_std == 0 for summary in found):
        returns = sum(summary.mean_return for summary in found) / len(found)
        yield (
            f"warning  nothing was learned: in every group all rollouts had the same return (mean {returns:.2f}). Can "
            f"this policy play {params.world.name}? See docs/worlds/index.md, 'Which policy plays your world'"
        )


def _row(score: Scores, name: str) -> str:
    cells = [
        (getattr(score, f"base_{name}"), getattr(score, f"base_{name}_se"), ""),
        (getattr(score, name), getattr(score, f"{name}_se"), ""),
        (getattr(score, f"{name}_gain"), getattr(score, f"{name}_gain_se"), "+"),
    ]
    return f"{score.split + ', ' + name.upper():25}" + "".join(f"{_figure(*cell):>15}" for cell in cells)


def _figure(value: float, error: float | None, sign: str) -> str:
    return f"{value:{sign}.1f}" + ("" if error is None else f" ± {error:.1f}")


def _recorded_in(root: Path, params: Params, pipeline_digest: str) -> Iterator[str]:
    """Yield the MLflow run and the model version, or the error of a store that cannot be reached."""
    try:
        store = open_store(params.lineage, root)
        run = store.find_run({"pipeline_digest": pipeline_digest}, finished=True)
    except LineageError as error:
        yield f"MLflow   {error}"
        return
    if run is not None:
        address = without_credentials(store.uri)
        yield f"MLflow   run {run.info.run_name} of experiment {params.lineage.experiment}, in {address}"
        yield f"version  {run.data.tags.get('model_version', 'none: the scores are not of weights of this run')}"
