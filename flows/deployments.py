"""The flows that run on a schedule or on demand; prefect.yaml says when.

`loopline deploy` serves them. All work in this checkout, one at a time: nightly and weekly runs wait for their turn, an
hourly one that finds the checkout busy is skipped. A run that was killed is resumed by the next.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import prefect.runtime.flow_run
from prefect import flow, get_client, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed, Running
from pydantic import Field

from flows.dag.checkout_lock import CheckoutBusy, checkout_lock
from flows.dag.dvc_seam import PipelineFailed
from flows.dag.version_stages import changed_code
from flows.errors import in_words
from flows.params_file import write_params
from flows.profile_stack import read_mapping
from flows.runners.pipeline import explained
from flows.runners.run_artifacts import tell
from flows.runners.warm_run import bring_up_to_date, final_state
from tasks.core.config.dag import iteration_key
from tasks.core.config.params import MOST_ITERATIONS, ParamsError, load_params
from tasks.core.config.splits import MEASURED_SPLITS
from tasks.core.lineage.dvc_lock import lock_of
from tasks.core.lineage.params_and_metrics import registered_model
from tasks.core.processes.resources import spare_old_objects
from tasks.core.processes.running import parent_death_signal
from tasks.core.records.files import ArtifactError
from tasks.core.scored_models.comparing import comparison_page

_LOOKS_AT_POLICIES = ("evaluate_policy", "select_checkpoint", "score")
"""Stages that nothing is trained on: a change of theirs leaves no iteration untrained."""

Iterations = Annotated[int, Field(ge=1, le=MOST_ITERATIONS, strict=True)]
VersionName = Annotated[str, Field(min_length=1)]
VersionNames = Annotated[list[VersionName], Field(min_length=1)]
"""Types of parameters: the server holds them against a run when it is made, the flow when it begins."""


def run_name() -> str:
    """Return the deployment's flow and the time it was due: "nightly 2026-11-21 02:00"."""
    run = prefect.runtime.flow_run
    return f"{run.flow_name} {run.scheduled_start_time:%Y-%m-%d %H:%M}"


def iteration_run_name() -> str:
    """Return `run_name` with the iteration to reach: "short-iteration to i017 2026-11-21 03:30"."""
    try:
        goal = iteration_key(iterations_to_reach(Path.cwd(), int(prefect.runtime.flow_run.parameters["iterations"])))
    except ParamsError:  # which the run itself explains
        return run_name()
    run = prefect.runtime.flow_run
    return f"{run.flow_name} to {goal} {run.scheduled_start_time:%Y-%m-%d %H:%M}"


@flow(name="nightly", flow_run_name=run_name)
def nightly() -> State[Any]:
    """Bring the whole pipeline up to date with code and params.yaml."""
    root = _begin()
    with _turn(root, "nightly"):
        return _explained(root, lambda: final_state(bring_up_to_date(root, [])))


@flow(name="short-iteration", flow_run_name=iteration_run_name)
def short_iteration(iterations: Iterations = 1) -> State[Any]:
    """Continue training by so many iterations and bring evaluation, selection and scores up to date.

    Where an earlier run left iterations untrained, it finishes those and adds none. Skipped if the checkout is busy.
    """
    root = _begin()

    def work() -> State[Any]:
        with checkout_lock(root, "short-iteration"):
            _raise_iterations(root, iterations_to_reach(root, iterations))
            return final_state(bring_up_to_date(root, []))

    try:
        return _explained(root, work)
    except CheckoutBusy as busy:
        tell("schedule-skipped", f"short-iteration: {busy}", root)
        return Completed(name="Skipped", message=str(busy))


@flow(name="rescore-champion", flow_run_name=run_name)
def rescore_champion(version: VersionName = "champion") -> State[Any]:
    """Play all splits anew with a registered version, with the parameters and the code of today."""
    from flows.scoring.asked_models import Asked, asked_models
    from flows.scoring.score_models import scored

    root = _begin()

    def work() -> str:
        params = load_params(root / "params.yaml")
        named = f"models:/{registered_model(params)}{'/' if version.isdigit() else '@'}{version}"
        asked = [Asked(root, params.world.name, split, {}, None, ()) for split in MEASURED_SPLITS]
        scores = [scored(asked_models([named]), each, root / "data" / "scored")[0] for each in asked]
        return "\n\n".join(comparison_page(each) for each in scores)

    return _paged(root, "rescore-champion", work)


@flow(name="comparison", flow_run_name=run_name)
def comparison(versions: VersionNames) -> State[Any]:
    """Compare registered versions, named by numbers or aliases, by their stored scores."""
    from tasks.core.registry.run_registry import compare_versions, opened

    root = _begin()

    def work() -> str:
        with opened(root) as (registry, _):
            return comparison_page(compare_versions(registry, versions, root)[0])

    return _paged(root, "comparison", work)


@flow(name="note", flow_run_name="{event}")
def note(event: str = "note", text: str = "") -> State[Any]:
    """Note an event in the logs: what prefect.yaml's automation does with each. Put a message to yourself here."""
    _begin()
    get_run_logger().warning("%s: %s", event, text)
    return Completed(message=text)


def _paged(root: Path, run: str, work: Callable[[], str]) -> State[Any]:
    """Do the work in its turn, and keep its page as an artifact of the run."""

    def turn() -> State[Any]:
        with _turn(root, run):
            create_markdown_artifact(work(), key=run)
        return Completed(message="written to data/")

    return _explained(root, turn)


def iterations_to_reach(root: Path, more: int) -> int:
    """Return the value of `iterations` that a short iteration is to end with.

    The present one while its last iteration is not trained as code and parameters are now, else `more` on top.
    """
    params = load_params(root / "params.yaml")
    try:
        training = [stage for stage in lock_of(root, params).stages if stage.task not in _LOOKS_AT_POLICIES]
    except ArtifactError:
        return params.iterations
    last = f"update_policy@{iteration_key(params.iterations)}"
    unfinished = last not in {stage.name for stage in training} or any(changed_code(training, params, root))
    return params.iterations if unfinished else params.iterations + more


def _explained(root: Path, work: Callable[[], State[Any]]) -> State[Any]:
    """Return the state that `work` ends in; a failure says why in the UI and in the worker's log."""
    try:
        return work()
    except CheckoutBusy:
        raise
    except PipelineFailed as failure:
        message = explained(failure, root)
    except Exception as error:
        message = in_words(error, root)
    print(message, file=sys.stderr)
    return Failed(message=message)


def _raise_iterations(root: Path, iterations: int) -> None:
    """Write params.yaml, which `dvc repro` by hand reads too. Raises ParamsError before anything is written.

    Git shows the change; the record of a run does not count it as one (tasks/core/lineage/git_state.py).
    """
    path = root / "params.yaml"
    content = read_mapping(path)
    if content["iterations"] != iterations:
        write_params(path, {**content, "iterations": iterations})


def _begin() -> Path:
    """Return the checkout, into which prefect.yaml's pull step changed, and end this run with its worker."""
    parent_death_signal()()
    spare_old_objects()
    return Path.cwd()


@contextmanager
def _turn(root: Path, run: str) -> Iterator[None]:
    """Wait for the checkout; meanwhile the flow run's state is Waiting."""
    holders: list[str] = []

    def waiting(holder: str) -> None:
        holders.append(holder)
        _set_state(Running(name="Waiting", message=f"for {holder}, which works in this checkout"))

    with checkout_lock(root, run, waiting):
        if holders:
            _set_state(Running())
        yield


def _set_state(state: State[Any]) -> None:
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(prefect.runtime.flow_run.id, state, force=True)
