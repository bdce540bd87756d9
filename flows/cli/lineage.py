"""`loopline lineage`: the origin of a checkpoint, a metric or a rollout, and whether every link of that chain holds.

A subject is a checkpoint (i012, or `selected`: the one chosen on dev), a score (test_normal.tgc, dev.tgc, i003.kl),
a rollout (i003:TASK:2; also test_normal:TASK:0), or the path of any artifact.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.command import CHECKOUT, command, fitted, refusing
from tasks.core.records.layout import Layout

if TYPE_CHECKING:
    from tasks.core.config.params import Params
    from tasks.core.lineage.trace import Origin, Provenance, Subject


def _below_checkout(subject: str) -> str:
    """Return the path in the checkout of a file or folder of the current one; other subjects as they are."""
    path, checkout = Path(subject).resolve(), CHECKOUT.get()
    is_here = checkout is not None and "/" in subject and path.exists() and path.is_relative_to(checkout)
    return path.relative_to(checkout).as_posix() if is_here and checkout else subject


@command("lineage", "Look")
def lineage(
    subject: Annotated[
        str,
        typer.Argument(
            callback=_below_checkout, help="i012, selected, test_normal.tgc, i003:TASK:2 or a path below data/."
        ),
    ],
) -> int:
    """Print where a number or an artifact came from, and check it.

    The answer goes down to task ids and seeds, with parameters, commit and base model as they were recorded, and holds
    each digest against dvc.lock and DVC's cache. Exit code 1: a link is broken; 2: there is no such subject.

    \b
    loopline lineage selected
    loopline lineage test_normal.tgc
    loopline lineage data/report
    """
    from tasks.core.lineage.trace import UnknownSubject

    with refusing(UnknownSubject):
        lines, broken = traced(subject, Path.cwd())
    print("\n".join([*lines, *(f"BROKEN: {line}" for line in broken)] if broken else [*lines, "every link holds"]))
    return 1 if broken else 0


def traced(name: str, root: Path) -> tuple[list[str], list[str]]:
    """Return the answer in lines, and the broken links. Raises UnknownSubject, ParamsError and ArtifactError."""
    from flows.dag.dvc_seam import cache_folder
    from flows.dag.version_stages import changed_code
    from tasks.core.config.params import load_params
    from tasks.core.lineage.dvc_lock import lock_of
    from tasks.core.lineage.trace import UnknownSubject, find_subject, trace_provenance
    from tasks.core.policies.selected_policy import of_other_policies
    from tasks.core.records.files import ArtifactError
    from tasks.core.records.schemas import SELECTED_POLICY

    layout = Layout(root)
    params = load_params(layout.params)
    try:
        subject = find_subject(name, layout)
    except ArtifactError as error:
        if (root / "dvc.lock").exists():
            raise
        raise UnknownSubject(f"{name}: no stage has run here, and it does not exist") from error
    if not (root / "dvc.lock").exists() and not (root / subject.path).exists():
        raise UnknownSubject(f"{name}: no stage has run here, and it does not exist")
    lock = lock_of(root, params, side_tasks=True)
    found = trace_provenance(subject, lock, layout, cache_folder(root))
    if not found.stages and not (root / subject.path).exists():
        raise UnknownSubject(f"{name}: no stage in dvc.lock wrote it, and it does not exist")
    is_of_selected = name == SELECTED_POLICY or any(stage.task == "select_checkpoint" for stage in found.stages)
    broken = [*found.broken, *(of_other_policies(layout) if is_of_selected else ())]
    return [*fitted(page(subject, found, params, root))], [*broken, *changed_code(found.stages, params, root)]


def page(subject: Subject, found: Provenance, params: Params, root: Path) -> Iterator[str]:
    """Yield the answer in lines, from the artifact to what it began with; a line on stderr where the store is down."""
    from tasks.core.lineage.mlflow_store import LineageError
    from tasks.core.lineage.trace import find_origin

    versions = {stage.task: stage.version.digest for stage in found.stages if stage.version is not None}
    try:
        origin = find_origin(params.lineage, root, versions)
    except LineageError as error:
        print(f"loopline lineage: {error}", file=sys.stderr)
        origin = None
    yield subject.path
    yield from (f"  {fact}" for fact in subject.facts)
    for stage in found.stages:
        version = stage.version
        made_by = "?" if version is None else f"code {version.code[:12]}, parameters {version.params[:12]}"
        yield f"<- {stage.name} ({made_by})"
        yield from (f"     wrote {path}  {md5}" for path, md5 in stage.outs.items())
    yield from (f"<- {path}  {md5} (no stage wrote it)" for path, md5 in found.sources.items())
    if found.played:
        yield "rollouts"
        yield from (f"  {line}" for line in found.played)
    yield from origin_lines(found, origin, params, root)


def origin_lines(found: Provenance, origin: Origin | None, params: Params, root: Path) -> Iterator[str]:
    """Base model, commit and parameters as recorded with the artifacts, each with what lies here where that differs."""
    from tasks.core.lineage.git_state import git_state
    from tasks.core.lineage.params_and_metrics import flat_params, params_digest

    head, here = git_state(root), flat_params(params)
    place = Layout(Path()).base_policy.as_posix()
    base = next((stage.outs[place] for stage in found.stages if place in stage.outs), "?")
    if origin is None:
        yield f"base model: {base}"
        yield "code and parameters: in no finished run that MLflow knows (record_lineage records them)"
        yield f"  here are {head} and parameters {params_digest(params)}"
        return
    source, revision = (origin.params.get(f"policy.{name}", "null") for name in ("source", "revision"))
    yield f"base model: {source}{'' if revision == 'null' else f' at {revision}'}  {base}"
    yield f"code: {origin.git}{'' if origin.git == head else f' (here is {head})'}"
    if origin.packages:
        yield f"packages: {origin.packages}"
    yield f"parameters: {origin.params_digest}"
    for name, value in sorted(origin.params.items()):
        yield f"  {name} = {value}{'' if here.get(name) == value else f' (here: {here.get(name)})'}"
