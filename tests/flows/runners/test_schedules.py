"""The schedules of prefect.yaml in words."""

from pathlib import Path

from flows.runners.schedules import schedule_lines
from tests.flows.tiny_project import ROOT


def test_schedules_are_said_in_words() -> None:
    assert [*schedule_lines(ROOT / "prefect.yaml")] == [
        "nightly/local: at 02:00 every day, UTC",
        "short-iteration/local: at minute 30 of every hour, UTC "
        "(paused: start it on its page, or have `active: true` in prefect.yaml)",
        "rescore-champion/local: at 12:00 on Sunday, UTC",
        "comparison/local: on demand",
        "note/local: at each event loopline.*",
    ]


def test_other_kinds_of_schedules_are_shown_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "prefect.yaml"
    both = "[{interval: 3600}, {rrule: FREQ=DAILY}, {cron: 5 8 * * *, timezone: Europe/Rome}]"
    path.write_text(f"deployments: [{{name: a, entrypoint: flows.deployments.nightly, schedules: {both}}}]")
    assert [*schedule_lines(path)] == [
        "nightly/a: interval 3600",
        "nightly/a: rrule FREQ=DAILY",
        "nightly/a: at 08:05 every day, Europe/Rome",
    ]
