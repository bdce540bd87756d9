"""`loopline report`: the page of the last run."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import command


@command("report", "Look")
def report(opened: Annotated[bool, typer.Option("--open/--no-open", help="Or print its path alone.")] = True) -> int:
    """Open the report of the last run in a browser.

    It is a page that needs no server and no network. Exit code 1: no run has ended yet.

    \b
    loopline report
    loopline report --no-open
    """
    import webbrowser

    from tasks.core.records.files import ArtifactError
    from tasks.core.records.layout import Layout

    page = Layout(Path.cwd()).report / "index.html"
    if not page.exists():
        raise ArtifactError(f"{page}: missing; `loopline run` or `dvc repro` writes it")
    print(page)
    if opened:
        webbrowser.open(page.as_uri())
    return 0
