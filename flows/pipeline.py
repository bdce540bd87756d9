"""The whole DAG in one warm process: models, engines and worlds are loaded once.

    python -m flows.pipeline [--until STAGE] [--sequential] [--without-prefect] [--wait]

DVC's own reproduce loop decides what runs and writes dvc.lock, so `dvc repro` and this command can take turns. At many
iterations it is the quicker one: DVC itself takes seconds to rewrite a long dvc.lock after each stage.
"""

import argparse
import gc
import sys
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path

from flows.dag.checkout_lock import Waiting, checkout_lock
from flows.dag.dvc_seam import Outcome, PipelineFailed, reproduce, summary
from flows.dag.input_files import require_named_files
from flows.dag.stages import UnknownStage, check_key, find_stage
from flows.errors import is_expected
from flows.orchestration.prefect_server import prefect_api
from flows.signals import stop_cleanly_on_signals
from flows.workers.plain_runner import PlainRunner
from tasks.core.config.dag import iteration_key
from tasks.core.config.params import ParamsError, load_params
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.processes.caller_variables import settle_variables
from tasks.core.processes.process_memory import spare_old_objects


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, and turn expected errors into one message and an exit code."""
    parser = argparse.ArgumentParser(prog="python -m flows.pipeline", description="Run the whole pipeline, warm.")
    parser.add_argument(
        "--until", metavar="STAGE", help="run this stage (say score, or update_policy@i003) and what it needs"
    )
    parser.add_argument(
        "--sequential",
        action="store_true",
        help="one stage at a time, in one process, even where collection.staleness allows two",
    )
    parser.add_argument(
        "--without-prefect", action="store_true", help="no flow run and no server: one stage at a time, in this process"
    )
    parser.add_argument("--wait", action="store_true", help="for another run that works in this checkout")
    parsed = parser.parse_args(arguments)
    settle_variables()
    stop_cleanly_on_signals()
    spare_old_objects()
    root = Path.cwd()
    waiting = _tell_holder if parsed.wait else None
    try:
        targets = _targets(parsed.until, root)
        if parsed.without_prefect:
            outcomes = run_without_prefect(root, targets, waiting)
        else:
            outcomes = run_pipeline(root, targets, waiting, sequential=parsed.sequential)
    except PipelineFailed as error:
        return _explain(error, root)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not is_expected(error):
            raise
        print(f"flows.pipeline: {error}", file=sys.stderr)
        return 2 if isinstance(error, UnknownStage) else 1
    print(summary(outcomes))
    return 0


def run_pipeline(
    root: Path, targets: list[str], waiting: Waiting | None = None, *, sequential: bool = False
) -> dict[str, Outcome]:
    """Bring `targets` ([]: everything) up to date as one Prefect flow run.

    With `collection.staleness` above 0, rollouts are played while the policy is updated, unless `sequential`.
    On the server of PREFECT_API_URL; without one, on a server that lives as long as the run.
    Raises PipelineFailed, ServerError when no server can be started, and, unless `waiting` is given, CheckoutBusy.
    """
    with checkout_lock(root, "flows.pipeline", waiting), prefect_api(meanwhile=_load_flow):
        return _run_flow(root, targets, sequential)


def run_without_prefect(root: Path, targets: list[str], waiting: Waiting | None = None) -> dict[str, Outcome]:
    """Bring `targets` ([]: everything) up to date, each stage tried once.

    Raises PipelineFailed, and, unless `waiting` is given, CheckoutBusy.
    """
    cache = ProcessCache()
    with checkout_lock(root, "flows.pipeline", waiting):
        try:
            return reproduce(root, targets, PlainRunner(root, cache))
        finally:
            cache.close()


def _tell_holder(holder: str) -> None:
    print(f"flows.pipeline: waits for {holder}, which works in this checkout", file=sys.stderr)


def _load_flow() -> None:
    """Import what a flow run needs: Prefect's client and all, 2 s."""
    import_module("flows.orchestration.warm_run")


def _run_flow(root: Path, targets: list[str], sequential: bool) -> dict[str, Outcome]:
    from prefect import flow

    from flows.orchestration.run_artifacts import SERVER_FAULTS
    from flows.orchestration.warm_run import bring_up_to_date, final_state

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
        print(f"flows.pipeline: the Prefect server was not told how the run ended ({error})", file=sys.stderr)
    return done.result()


def _run_name(root: Path, targets: list[str]) -> str:
    last = iteration_key(load_params(root / "params.yaml").iterations)
    return f"pipeline to {targets[0] if targets else last}"


def _targets(until: str | None, root: Path) -> list[str]:
    """DVC's targets for --until. Raises UnknownStage and ParamsError."""
    params = load_params(root / "params.yaml")
    if until is None:
        return []
    name, _, key = until.partition("@")
    stage = find_stage(name)
    if key:
        check_key(stage, key, params)
    return [until]


def _explain(failure: PipelineFailed, root: Path) -> int:
    """The cause in one message where it was expected; with its traceback where it was not."""
    cause = failure.__cause__
    if isinstance(cause, FileNotFoundError):
        try:
            require_named_files(load_params(root / "params.yaml"), root)
        except ParamsError as missing:
            cause = missing
    if cause is None:
        print(f"flows.pipeline: {failure}", file=sys.stderr)
    elif is_expected(cause) or type(cause).__module__.startswith("dvc."):
        print(f"flows.pipeline: {failure}\n{cause}", file=sys.stderr)
    else:
        raise failure
    return 1


if __name__ == "__main__":
    code = main()
    gc.freeze()  # else Python looks through all that torch loaded, for seconds, only to exit
    sys.exit(code)
