"""All commands of `loopline`, in the groups in which `loopline --help` lists them."""

import sys
from collections.abc import Callable, Sequence
from inspect import cleandoc
from typing import Any

import typer

from flows.cli import checking, comparing, running, serving
from flows.cli.command import Command

Callback = Callable[..., int]


def _group(**settings: Any) -> typer.Typer:
    return typer.Typer(no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False, **settings)


def _add(group: typer.Typer, commands: dict[str, Callback], panel: str | None = None) -> None:
    for name, callback in commands.items():
        group.command(name, cls=Command, help=_joined(callback.__doc__ or ""), rich_help_panel=panel)(callback)


def _joined(docstring: str) -> str:
    """Return a docstring with each paragraph on a line of its own, so that help wraps it; examples stay as they are."""
    paragraphs = cleandoc(docstring).split("\n\n")
    return "\n\n".join(each if each.startswith("\b") else each.replace("\n", " ") for each in paragraphs)


app = _group(help="Train LLM agents that use tools, as a pipeline in which every number can be made again.")
_add(app, {"configure": running.configure, "run": running.run, "watch": running.watch}, "Run")
_add(app, {"compare": comparing.compare}, "Run")
_add(app, {"status": checking.status, "report": checking.report, "lineage": comparing.lineage}, "Look")
_add(app, {"plan": checking.plan, "doctor": checking.doctor}, "Look")
_add(app, {"deploy": serving.deploy, "serve": serving.serve, "join": serving.join}, "Serve")

registry = _group(callback=comparing.of_model)
_add(registry, {"list": comparing.list_versions, "seeds": comparing.seeds})
_add(registry, {"compare": comparing.compare_versions, "promote": comparing.promote})
app.add_typer(registry, name="registry", rich_help_panel="Look")

export = _group(help="Write a run's scores for another package.")
_add(export, {"appworld": serving.appworld, "bfcl": serving.bfcl})
app.add_typer(export, name="export", rich_help_panel="Serve")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (by default this process's) and return its exit code.

    Wrong arguments are one line on stderr and exit code 2.
    """
    try:
        return int(app(arguments, prog_name="loopline", standalone_mode=False) or 0)
    except typer.TyperException as error:
        context, message = getattr(error, "ctx", None), " ".join(error.format_message().split())
        if message:  # empty where typer has shown the help
            print(f"{context.command_path if context else 'loopline'}: {message}", file=sys.stderr)
        return error.exit_code
