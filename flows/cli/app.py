"""The command `loopline`, put together from the files of this folder, each of which names its command."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from inspect import cleandoc
from pathlib import Path
from pkgutil import walk_packages
from typing import Annotated, Any, get_args

import typer

import flows.cli
from flows.cli.command import CHECKOUT, COMMANDS, Command, Panel


def _application() -> typer.Typer:
    """Return the application with every command of this folder; help lists those of a panel by the alphabet."""
    for module in walk_packages(flows.cli.__path__, f"{flows.cli.__name__}."):
        if module.name.rpartition(".")[2] not in ("__main__", "app"):
            import_module(module.name)
    purpose = "Train LLM agents that use tools, as a pipeline in which every number can be made again."
    groups = {"": _group(callback=_options, help=purpose)}
    for each in sorted(COMMANDS, key=lambda each: (not each.is_group, get_args(Panel).index(each.panel), each.name)):
        above, _, name = each.name.rpartition(" ")
        panel = None if above else each.panel
        if each.is_group:
            groups[each.name] = _group(callback=each.callback)
            groups[above].add_typer(groups[each.name], name=name, rich_help_panel=panel)
        else:
            text = _joined(each.callback.__doc__ or "")
            groups[above].command(name, cls=Command, help=text, rich_help_panel=panel)(each.callback)
    return groups[""]


def _group(**settings: Any) -> typer.Typer:
    return typer.Typer(no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False, **settings)


def _joined(docstring: str) -> str:
    """Return a docstring with each paragraph on a line of its own, so that help wraps it; examples stay as they are."""
    paragraphs = cleandoc(docstring).split("\n\n")
    return "\n\n".join(each if each.startswith("\b") else each.replace("\n", " ") for each in paragraphs)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"loopline {version('loopline')}")
        raise typer.Exit


def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options before a command."""


app = _application()


def main(arguments: Sequence[str] | None = None, checkout: Path | None = None) -> int:
    """Run the command line `arguments` (by default this process's) in `checkout`, and return its exit code.

    Paths among the arguments are of the current folder, which is also the default of `checkout`. Wrong arguments are
    one line on stderr and exit code 2.
    """
    CHECKOUT.set(checkout)
    try:
        return int(app(arguments, prog_name="loopline", standalone_mode=False) or 0)
    except typer.TyperException as error:
        context, message = getattr(error, "ctx", None), " ".join(error.format_message().split())
        if message:  # empty where typer has shown the help
            print(f"{context.command_path if context else 'loopline'}: {message}", file=sys.stderr)
        return error.exit_code
