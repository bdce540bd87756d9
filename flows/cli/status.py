"""`loopline status`: the stages that `dvc repro` would run now, and why: knobs, files of code, artifacts.

`dvc status` and `dvc repro --dry` can't know: what a stage runs and reads is in data/stage_versions.json, which the
stage version_stages writes, so before it has run they name that stage alone. A stage that follows another one may run:
it does not where its inputs come out the same. Where DVC's run cache holds a result, DVC takes it from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.command import AsJson, command
from flows.signals import stop_cleanly_on_signals

if TYPE_CHECKING:
    from flows.dag.due_stages import Due


@command("status", "Look")
def status(as_json: AsJson = False) -> int:
    """List the stages that would run now, and why.

    The reason is a knob, a file of code or an artifact. A stage that follows another may run: it does not if its
    inputs come out the same. `dvc status` cannot know all of this before the stage version_stages has run.

    \b
    loopline status
    """
    stop_cleanly_on_signals()
    from flows.dag.due_stages import due_stages

    stages = list(due_stages(Path.cwd()))
    print(json.dumps([vars(stage) for stage in stages]) if as_json else "\n".join(page(stages)))
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
