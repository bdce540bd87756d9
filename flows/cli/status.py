"""The stages that `dvc repro` would run now, and why: which knob, which file of code, which artifact.

`dvc status` and `dvc repro --dry` can't know: what a stage runs and reads is in data/stage_versions.json, which the
stage version_stages writes, so before it has run they name that stage alone. A stage that follows another one may run:
it does not where its inputs come out the same. Where DVC's run cache holds a result, DVC takes it from there.
"""

from collections.abc import Iterable

from flows.dag.due_stages import Due


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
    from flows.moved import moved

    moved("status")
