"""When the deployments of prefect.yaml run, in words."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from cronsim import CronSim

_PAUSED = "paused: start it on its page, or have `active: true` in prefect.yaml"


def schedule_lines(path: Path) -> Iterator[str]:
    """Yield a line for each schedule of the prefect.yaml at `path`, and for each deployment that has none."""
    for deployment in yaml.safe_load(path.read_text(encoding="utf-8"))["deployments"]:
        flow = deployment["entrypoint"].rpartition(".")[2].replace("_", "-")
        events = [event for trigger in deployment.get("triggers", []) for event in trigger["expect"]]
        without = f"at each event {', '.join(events)}" if events else "on demand"
        for when in [*map(_in_words, deployment.get("schedules") or [])] or [without]:
            yield f"{flow}/{deployment['name']}: {when}"


def _in_words(schedule: Mapping[str, Any]) -> str:
    if "cron" in schedule:
        explained = CronSim(schedule["cron"], datetime.now(UTC)).explain()
        when = f"{explained[0].lower()}{explained[1:]}, {schedule.get('timezone', 'UTC')}"
    else:
        when = next(f"{kind} {schedule[kind]}" for kind in ("interval", "rrule") if kind in schedule)
    return when if schedule.get("active", True) else f"{when} ({_PAUSED})"
