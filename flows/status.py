"""The stages that `dvc repro` would run now, and why: which knob, which file of code, which artifact.

    python -m flows.status

`dvc status` and `dvc repro --dry` can't know: what a stage runs and reads is in data/stage_versions.json, which the
stage version_stages writes, so before it has run they name that stage alone. A stage that follows another one may run:
it does not where its inputs come out the same. Where DVC's run cache holds a result, DVC takes it from there.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from flows.dag.due_stages import Due, due_stages
from flows.errors import is_expected
from flows.signals import stop_cleanly_on_signals
from tasks.core.processes.caller_variables import settle_variables
from tasks.core.processes.process_memory import spare_old_objects


def main(arguments: list[str] | None = None) -> int:
    """Parse, ask, print. Exit code 1: params.yaml, dvc.yaml or dvc.lock can't be read."""
    parser = argparse.ArgumentParser(prog="python -m flows.status", description=(__doc__ or "").splitlines()[0])
    parser.parse_args(arguments)
    settle_variables()
    stop_cleanly_on_signals()
    spare_old_objects()
    try:
        stages = due_stages(Path.cwd())
    except Exception as error:
        if not is_expected(error) and not type(error).__module__.startswith("dvc."):
            raise
        print(f"flows.status: {error}", file=sys.stderr)
        return 1
    print("\n".join(page(stages)))
    return 0


def page(stages: Iterable[Due]) -> list[str]:
    """Return the answer in lines: a line for each reason, with the stages that share it."""
    listed = list(stages)
    due = [stage for stage in listed if stage.reasons]
    if not due:
        return [f"all {len(listed)} stages are up to date"]
    sure = sum(stage.is_sure for stage in due)
    keys: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for stage in due:
        keys.setdefault((stage.name, stage.reasons), []).append(stage.key)
    lines = [f"of {len(listed)} stages {sure} will run, {len(due) - sure} more may, as their inputs are made anew:"]
    return [*lines, *(f"  {name}{_shown(each)}: {'; '.join(reasons)}" for (name, reasons), each in keys.items())]


def _shown(keys: list[str]) -> str:
    if not any(keys):
        return ""
    return f" ({', '.join(keys if len(keys) <= 4 else [*keys[:2], '...', keys[-1]])})"


if __name__ == "__main__":
    sys.exit(main())
