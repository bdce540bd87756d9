"""The origin of an artifact by dvc.lock: the stages behind it, back to the sources that no stage wrote. Pure."""

from collections.abc import Iterator

from tasks.core.lineage.dvc_lock import FOLDERS_OF_MANY, DvcLock, LockedStage

UNKNOWN = "no stage in dvc.lock wrote it"


def producers(lock: DvcLock, path: str) -> list[LockedStage]:
    """Return the stages that wrote `path`, a folder above it, or files inside it, in the order of dvc.lock."""
    return [stage for stage in lock.stages if any(overlap(path, out) for out in stage.outs)]


def upstream_stages(lock: DvcLock, path: str) -> list[LockedStage]:
    """Return all stages that the artifact at `path` depends on, each once; a stage comes before its own dependencies.

    Empty when no stage wrote it.
    """
    stages: dict[str, LockedStage] = {}
    waiting = producers(lock, path)
    while waiting:
        stage = waiting.pop()
        if stage.name not in stages:
            stages[stage.name] = stage
            waiting += [maker for dep in stage.inputs for maker in producers(lock, dep)]
    return _latest_first(list(stages.values()), lock)


def broken_joints(lock: DvcLock, stages: list[LockedStage]) -> Iterator[str]:
    """Yield places where a stage read something else than dvc.lock records now."""
    written = lock.artifacts
    for stage in stages:
        for path in stage.inputs:
            now = written.get(path)
            if now is not None and now != stage.deps[path] and path.rpartition("/")[2] not in FOLDERS_OF_MANY:
                yield f"{stage.name} read {path} as {stage.deps[path]}, but dvc.lock has {now}; run `dvc repro`"


def overlap(path: str, other: str) -> bool:
    """Return whether one of two paths is the other, or a folder above it."""
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")


def _latest_first(stages: list[LockedStage], lock: DvcLock) -> list[LockedStage]:
    """Order stages depth first from the last: dvc.lock's own order is that of the last runs, not of dependence."""
    remaining = {stage.name: stage for stage in stages}
    needed_by = {
        stage.name: {user.name for user in stages if user is not stage and _reads(user, stage)} for stage in stages
    }
    ordered: list[LockedStage] = []
    while remaining:
        free = [name for name in remaining if not needed_by[name] & remaining.keys()]
        name = max(free or remaining, key=lambda name: (remaining[name].key, name))
        ordered.append(remaining.pop(name))
    return ordered


def _reads(user: LockedStage, maker: LockedStage) -> bool:
    return any(overlap(dep, out) for dep in user.inputs for out in maker.outs)
