"""A checkout's run held against a published one, in lines."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.dag.stages import STAGES
from flows.published.differences import described, first_difference
from flows.published.dvc_files import RunFiles, pull_run
from flows.published.finished_run import run_facts
from flows.published.machine import PORTABLE
from flows.published.records import PUBLISHED, PublishedRun, RunFacts, names
from tasks.core.interfaces.engine_kind import EngineNeeds, find_engine, open_engine
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params

_NAMED = 4
"""Names in one line."""


class UnknownRun(ValueError):  # noqa: N818
    """No published run is where one was asked for."""


@dataclass(frozen=True)
class Verified:
    """The answer."""

    lines: list[str]
    holds: bool


def find_run(name: str, root: Path) -> PublishedRun:
    """Return a published run by its name, its folder or its dvc.lock. Raises UnknownRun and ArtifactError."""
    asked = Path(name)
    folders = [root / PUBLISHED / name, asked.parent if asked.name == "dvc.lock" else asked]
    for folder in folders:
        if folder.is_dir() and any((folder / file).exists() for file in ("run.json", "digests.json")):
            return PublishedRun(folder)
    known = ", ".join(names(root / PUBLISHED)) or "none"
    raise UnknownRun(f"{name}: no published run; those of {PUBLISHED} are: {known}")


def verify(run: PublishedRun, root: Path) -> Verified:
    """Compare the run in `root`, which is fetched if nothing ran there and DVC has a remote. Raises ArtifactError."""
    pulled = pull_run(root, run.lock)
    found = first_difference(root, run.digests)
    about = [*differing_facts(run_facts(root), run.facts)]
    if found is None:
        whose = "fetched" if pulled else "made here"
        return Verified([f"all {run.digests.artifacts} artifacts, {whose}, have the published bytes", *about], True)
    _try_engine(Layout(root))
    lines = [*described(found, root, RunFiles(root, run.lock).find)]
    return Verified([*lines, f"  {found.before} artifacts before it have the published bytes", *about], False)


def _try_engine(layout: Layout) -> None:
    """Open an engine of this process once: it warns where this machine's bits depend on more than the conversation."""
    params = recorded_params(layout)
    kind = find_engine(params.engine.name)
    if kind.in_process and kind.samples_policy and layout.base_policy.exists():
        open_engine(params.engine, EngineNeeds(params.policy, layout.base_policy)).close()


def differing_facts(here: RunFacts, published: RunFacts) -> Iterator[str]:
    """Yield a line on the machine, the packages, the knobs and the code each, where they are not the published ones."""
    for what, mine, theirs, without in (
        ("machine", here.machine, published.machine, _promise(published.machine)),
        ("packages", here.packages, published.packages, "the same bytes are promised with the same torch alone"),
        ("knobs", here.knobs, published.knobs, "another run was asked for"),
    ):
        if differing := [*_differing(mine, theirs)]:
            yield f"{what}: {'; '.join(differing)} ({without})"
    other = [stage.name for stage in STAGES if here.code.get(stage.name) != published.code.get(stage.name)]
    if other:
        commits = f"published at commit {published.commit or '?'}, here {here.commit or '?'}"
        yield f"code: {_shortened(other)} ran other code ({commits})"


def _promise(machine: Mapping[str, str]) -> str:
    """Return the condition under which a run has the bytes of one that was made on `machine`."""
    if machine.get("bits") != "portable":
        return "the same bytes are promised on the same kind of machine alone"
    variables = " ".join(f"{name}={value}" for name, value in PORTABLE.items())
    return f"the same bytes are promised on any x86-64 processor with AVX2, for a run begun with {variables}"


def _differing(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs, torch first: it decides most."""
    ordered = sorted({*mine, *theirs}, key=lambda name: (name != "torch", name))
    differing = [name for name in ordered if mine.get(name) != theirs.get(name)]
    for name in differing[:_NAMED]:
        yield f"{name} {_value(mine.get(name))} here, {_value(theirs.get(name))} published"
    if len(differing) > _NAMED:
        yield f"and {len(differing) - _NAMED} more"


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


def _shortened(listed: list[str]) -> str:
    return ", ".join(listed if len(listed) <= _NAMED else [*listed[:_NAMED], f"and {len(listed) - _NAMED} more"])
