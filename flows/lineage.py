"""The origin of a checkpoint, a metric or a rollout, and whether every link of that chain holds.

A subject is a checkpoint (i012, or `selected`: the one chosen on dev), a score (test_normal.tgc, dev.tgc, i003.kl),
a rollout (i003:TASK:2; also test_normal:TASK:0), or the path of any artifact.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from flows.dag.dvc_cache import cache_folder
from flows.dag.version_stages import changed_code
from tasks.core.config.params import Params, load_params
from tasks.core.lineage.dvc_lock import lock_of
from tasks.core.lineage.git_state import git_state
from tasks.core.lineage.mlflow_store import LineageError
from tasks.core.lineage.params_and_metrics import flat_params, params_digest
from tasks.core.lineage.subject import Subject, find_subject
from tasks.core.lineage.trace import Origin, Provenance, find_origin, trace_provenance
from tasks.core.records.layout import Layout


def traced(name: str, root: Path) -> tuple[list[str], list[str]]:
    """Return the answer in lines, and the broken links. Raises UnknownSubject, ParamsError and ArtifactError."""
    layout = Layout(root)
    params = load_params(layout.params)
    lock = lock_of(root, params, side_tasks=True)
    subject = find_subject(name, layout)
    found = trace_provenance(subject, lock, layout, cache_folder(root))
    return [*page(subject, found, params, root)], [*found.broken, *changed_code(found.stages, params, root)]


def page(subject: Subject, found: Provenance, params: Params, root: Path) -> Iterator[str]:
    """Yield the answer in lines, from the artifact to what it began with."""
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
    yield from origin_lines(found, _origin(found, params, root), params, root)


def origin_lines(found: Provenance, origin: Origin | None, params: Params, root: Path) -> Iterator[str]:
    """Base model, commit and parameters as recorded with the artifacts, each with what lies here where that differs."""
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
    yield f"parameters: {origin.params_digest}"
    for name, value in sorted(origin.params.items()):
        yield f"  {name} = {value}{'' if here.get(name) == value else f' (here: {here.get(name)})'}"


def _origin(found: Provenance, params: Params, root: Path) -> Origin | None:
    """Return the record of the stages behind the subject; None, with a line on stderr, where the store is down."""
    versions = {stage.task: stage.version.digest for stage in found.stages if stage.version is not None}
    try:
        return find_origin(params.lineage, root, versions)
    except LineageError as error:
        print(f"loopline lineage: {error}", file=sys.stderr)
        return None


if __name__ == "__main__":
    from flows.moved import moved

    moved("lineage")
