"""The whole DAG in one warm process: models, engines and worlds are loaded once.

DVC's own reproduce loop decides what runs and writes dvc.lock, so `dvc repro` and this command can take turns.
"""

import os
import sys
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path

from pydantic import ValidationError

from flows.dag.checkout_lock import Waiting, checkout_lock
from flows.dag.dvc_seam import Outcome, PipelineFailed, reproduce
from flows.dag.stages import check_key, find_stage
from flows.dag.version_stages import require_named_files
from flows.errors import in_words
from flows.runners.plain_runner import PlainRunner
from flows.runners.prefect_server import ServerError, prefect_api
from tasks.core.config.dag import iteration_key
from tasks.core.config.params import ParamsError, load_params
from tasks.core.interfaces.stage import ProcessCache


def run_pipeline(
    root: Path, targets: list[str], waiting: Waiting | None = None, *, sequential: bool = False
) -> dict[str, Outcome]:
    """Bring `targets` ([]: everything) up to date as one Prefect flow run.

    With `collection.staleness` above 0, rollouts are played while the policy is updated, unless `sequential`.
    On the server of PREFECT_API_URL; without one, on a server that lives as long as the run.
    Raises PipelineFailed, ServerError when no server can be started, and, unless `waiting` is given, CheckoutBusy.
    """
    with checkout_lock(root, "loopline run", waiting), prefect_api(meanwhile=_load_flow):
        return _run_flow(root, targets, sequential)


def run_without_prefect(root: Path, targets: list[str], waiting: Waiting | None = None) -> dict[str, Outcome]:
    """Bring `targets` ([]: everything) up to date, each stage tried once.

    Raises PipelineFailed, and, unless `waiting` is given, CheckoutBusy.
    """
    cache = ProcessCache()
    with checkout_lock(root, "loopline run", waiting):
        try:
            return reproduce(root, targets, PlainRunner(root, cache))
        finally:
            cache.close()


def _load_flow() -> None:
    """Import what a flow run needs: Prefect's client and all, 2 s. Raises ServerError naming a setting that is none."""
    try:
        import_module("flows.runners.warm_run")
    except ValidationError as error:
        wrong = {str(fault["input"]) for fault in error.errors()}
        named = [name for name, value in os.environ.items() if name.startswith("PREFECT_") and value in wrong]
        raise ServerError(f"{', '.join(named) or 'Prefect'}: {error.errors()[0]['msg']}") from None


def _run_flow(root: Path, targets: list[str], sequential: bool) -> dict[str, Outcome]:
    from prefect import flow

    from flows.runners.run_artifacts import SERVER_FAULTS, deliver_reports
    from flows.runners.warm_run import bring_up_to_date, final_state

    done: Future[dict[str, Outcome]] = Future()

    @flow(name="pipeline", flow_run_name=_run_name(root, targets), validate_parameters=False)
    def pipeline() -> object:
        try:
            done.set_result(bring_up_to_date(root, targets, sequential=sequential))
        except PipelineFailed as failure:
            done.set_exception(failure)
        return final_state(done.result())

    try:
        pipeline()
    except SERVER_FAULTS as error:
        if not done.done():
            raise
        print(f"loopline run: the Prefect server does not know how the run ended ({error})", file=sys.stderr)
    finally:
        deliver_reports()  # before the server ends, which may live no longer than the run
    return done.result()


def _run_name(root: Path, targets: list[str]) -> str:
    last = iteration_key(load_params(root / "params.yaml").iterations)
    return f"pipeline to {targets[0] if targets else last}"


def targets_of(until: str | None, root: Path) -> list[str]:
    """Return DVC's targets for a run up to the stage `until`. Raises UnknownStage and ParamsError."""
    params = load_params(root / "params.yaml")
    if until is None:
        return []
    name, _, key = until.partition("@")
    stage = find_stage(name)
    if key:
        check_key(stage, key, params)
    return [until]


def explained(failure: PipelineFailed, root: Path) -> str:
    """Return what failed, and below it why; the traceback of a fault in the program lies in the file that is named."""
    cause = failure.__cause__
    if isinstance(cause, FileNotFoundError):
        try:
            require_named_files(load_params(root / "params.yaml"), root)
        except ParamsError as missing:
            cause = missing
    return str(failure) if cause is None else f"{failure}\n{in_words(cause, root)}"
