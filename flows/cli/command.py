"""The parts that commands share: their options, and how they end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from flows.errors import is_expected
from tasks.core.processes.caller_variables import settle_variables
from tasks.core.processes.process_memory import spare_old_objects

_PROFILES = Path(__file__).resolve().parents[1] / "profiles"


class Refused(RuntimeError):  # noqa: N818
    """The profile, stage, version or subject that was asked for does not exist. Exit code 2."""


class Command(TyperCommand):
    """A command whose callback returns the exit code. An expected error is one message on stderr and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        settle_variables()
        spare_old_objects()
        try:
            return super().invoke(ctx)
        except Exception as error:
            if not is_expected(error) and not type(error).__module__.startswith("dvc."):
                raise
            print(f"{ctx.command_path}: {error}", file=sys.stderr)
            return 2 if isinstance(error, Refused) else 1


@contextmanager
def refusing(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds into `Refused`."""
    try:
        yield
    except kinds as error:
        raise Refused(str(error)) from error


def profiles(incomplete: str) -> list[str]:
    """Return the names of profiles that begin so, for the shell's completion."""
    return sorted(path.stem for path in _PROFILES.rglob("*.yaml") if path.stem.startswith(incomplete))


def words(option: str, text: str | None) -> list[str] | None:
    """Return the words of an option's list with commas. Raises BadParameter for a word that is there twice."""
    listed = None if text is None else [word for word in text.split(",") if word]
    if twice := sorted({word for word in listed or () if (listed or []).count(word) > 1}):
        raise typer.BadParameter(f"{', '.join(twice)}: named twice", param_hint=option)
    return listed


Settings = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KNOB=VALUE",
        default_factory=list,
        show_default=False,
        help="Change a knob; VALUE is YAML. Repeatable.",
    ),
]
