"""The parts that commands share: how a file names its command, their options, and how they end."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import Annotated, Any, Literal, TypeVar

import typer
from typer.core import TyperCommand

from flows.errors import WrongArgument, is_expected
from tasks.core.processes.caller_variables import settle_variables
from tasks.core.processes.resources import spare_old_objects

_PROFILES = Path(__file__).resolve().parents[1] / "profiles"
LAST_PORT = 65_535
_LEAST, _MOST = 60, 120
"""Columns of an answer: at least, and at most."""
Panel = Literal["Run", "Look", "Serve"]
"""Where the help of `loopline` lists a command, in this order."""

CHECKOUT: ContextVar[Path | None] = ContextVar("checkout", default=None)
"""The folder in which commands work; None: the current one."""


@dataclass(frozen=True)
class NamedCommand:
    """A function of a command file with the name that it has on the command line ("registry list")."""

    name: str
    panel: Panel
    callback: Callable[..., Any]
    is_group: bool = False
    """It takes the options before the words of the commands below it, and its docstring is their common help."""


COMMANDS: list[NamedCommand] = []
"""Commands that the files imported so far have named."""
Callback = TypeVar("Callback", bound=Callable[..., Any])


def group(name: str, panel: Panel) -> Callable[[Callback], Callback]:
    """Make a function what `loopline NAME` does before each command `loopline NAME WORD`."""
    return command(name, panel, is_group=True)


def command(name: str, panel: Panel, is_group: bool = False) -> Callable[[Callback], Callback]:
    """Make a function the command `loopline NAME`. It returns the exit code; its docstring is the help."""

    def named(callback: Callback) -> Callback:
        COMMANDS.append(NamedCommand(name, panel, callback, is_group))
        return callback

    return named


class Refused(WrongArgument):
    """The profile, stage, version or subject that was asked for does not exist. Exit code 2."""


class Command(TyperCommand):
    """A command whose callback returns the exit code. An expected error is one message on stderr and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        settle_variables()
        spare_old_objects()
        if (checkout := CHECKOUT.get()) is not None:
            os.chdir(checkout)
        try:
            return super().invoke(ctx)
        except Exception as error:
            if not is_expected(error) and not type(error).__module__.startswith("dvc."):
                raise
            print(f"{ctx.command_path}: {error}", file=sys.stderr)
            return 2 if isinstance(error, WrongArgument) else 1


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

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def fitted(lines: Iterable[str], hanging: int = 4) -> Iterator[str]:
    """Yield `lines`, the longer ones broken between words; what follows is indented `hanging` columns more."""
    width = min(max(get_terminal_size().columns, _LEAST), _MOST)
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        broken = wrap(
            line.expandtabs(),
            width,
            subsequent_indent=indent + " " * hanging,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
        yield from broken or [""]
