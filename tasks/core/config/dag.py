"""The section `dag` of params.yaml: what dvc.yaml loops over (its templating cannot count), and files that DVC watches.

No knobs: `dag_of` derives the whole section from `iterations`, `collection.staleness`, `.every` and `.tree`,
`evaluation.every`, `policy.source`, `policy.warm_start` and the world's data. `Sources` are the files
that knobs name and no stage wrote. DVC keeps the digest of each by its size, inode and time of change, so that an
unchanged model of tens of GB is read once.
"""

from pathlib import Path

from tasks.core.config.collection import CollectionConfig
from tasks.core.config.evaluation import EvaluationConfig
from tasks.core.config.kinds import PROJECT
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.section import Section
from tasks.core.config.world import WORLDS, WorldConfig

NO_POLICY_FILES = "data/base_policies"
"""Source of a policy that no folder holds: `recipe`, a package or a hub id, which are pinned by name."""
NO_WORLD_FILES = "flows/dag/no_world_files"
"""Source of a world that code alone makes, and package of one that is a folder here; the file says so."""


class Sources(Section):
    """The places of those files, relative to the project's root or absolute."""

    policy: str = NO_POLICY_FILES
    """The folder `policy.source`."""
    world: str = NO_WORLD_FILES
    """The data of the world in use, where a knob names some (`WorldSettings.source_files`)."""
    package: str = NO_WORLD_FILES
    """File or folder that changes with the package that brings the world (`Kinds.installed_at`); the machine's own."""


def sources_of(policy: PolicyConfig, world: WorldConfig) -> Sources:
    """Return the sources that these knobs name."""
    files = Path(policy.source).as_posix() if policy.is_folder else NO_POLICY_FILES
    return Sources(policy=files, world=_world_files(world), package=_package(world))


def _world_files(world: WorldConfig) -> str:
    files = world.settings.source_files
    return NO_WORLD_FILES if files is None else files.as_posix()


def _package(world: WorldConfig) -> str:
    place = WORLDS.installed_at(world.name)
    if place is None:
        return NO_WORLD_FILES
    return (place.relative_to(PROJECT) if place.is_relative_to(PROJECT) else place).as_posix()


WORLD_FOLDER = "data/world"


def recited_world_of(policy: PolicyConfig, world: WorldConfig) -> str:
    """Return the world's folder where the warm start recites its solutions, else NO_WORLD_FILES: it reads no world.

    A world with scripted play of its own (`WorldKind.demonstrations`) recites none.
    """
    if policy.warm_start is None or WORLDS.find(world.name).demonstrations is not None:
        return NO_WORLD_FILES
    return WORLD_FOLDER


def iteration_key(index: int) -> str:
    """Return the key of an iteration, "i007" for 7: a letter first, because YAML would read 007 as a number."""
    return f"i{index:03d}"


def iteration_number(key: str) -> int:
    """Return the number of an iteration, 7 for "i007"."""
    return int(key[1:])


class Predecessors(Section):
    """Origins of one iteration, each named by the iteration that made it."""

    policy: str
    """The policy that is updated: of the iteration before."""
    behaviour: str
    """The policy that sampled the rollouts. An older one where `collection.staleness` is above 0, or where the
    rollouts are those of an earlier iteration."""
    batch: str
    """The iteration whose rollouts are trained on. An earlier one where `collection.every` is not 1."""

    @property
    def staleness(self) -> int:
        """Updates between the policy that samples and the one that is updated."""
        return iteration_number(self.policy) - iteration_number(self.behaviour)


class Dag(Section):
    """Iterations and files over which dvc.yaml repeats its stages."""

    previous: dict[str, Predecessors]
    """Origins of every iteration that updates the policy."""
    collected: dict[str, str]
    """Iterations that collect rollouts, and the policy that samples for each. Empty where trees are searched."""
    searched: dict[str, str]
    """Iterations that search trees, and the policy that samples for each. Empty unless `collection.tree` is set."""
    evaluated: list[str]
    """Iterations whose policies are evaluated on dev."""
    recited_world: str
    """The world that the warm start recites, which prepare_world writes; NO_WORLD_FILES where it recites none."""
    sources: Sources
    """Files that stages read and no stage wrote."""

    def with_package_of(self, other: "Dag") -> "Dag":
        """Return this section with the package of another: each machine has it elsewhere."""
        return self.model_copy(update={"sources": self.sources.model_copy(update={"package": other.sources.package})})

    @property
    def sampled(self) -> dict[str, str]:
        """The iterations that have rollouts of their own, collected or searched, and the policy that sampled them."""
        return self.collected | self.searched


def dag_of(
    iterations: int,
    collection: CollectionConfig,
    evaluation: EvaluationConfig,
    policy: PolicyConfig,
    world: WorldConfig,
) -> Dag:
    """Return the section that follows from these knobs."""
    previous = previous_map(iterations, collection.staleness, collection.every)
    sampled = {key: before.behaviour for key, before in previous.items() if before.batch == key}
    searching = collection.tree is not None
    return Dag(
        previous=previous,
        collected={} if searching else sampled,
        searched=sampled if searching else {},
        evaluated=evaluated_keys(iterations, evaluation.every),
        recited_world=recited_world_of(policy, world),
        sources=sources_of(policy, world),
    )


def previous_map(iterations: int, staleness: int = 0, every: int = 1) -> dict[str, Predecessors]:
    """Return {i001: {policy: i000, ...}, ...}.

    Rollouts are collected in every `every`-th iteration, beginning with the first; 0: in the first alone.
    """
    batches = {i: i - (i - 1) % every if every else 1 for i in range(1, iterations + 1)}
    return {
        iteration_key(i): Predecessors(
            policy=iteration_key(i - 1),
            behaviour=iteration_key(max(0, batch - 1 - staleness)),
            batch=iteration_key(batch),
        )
        for i, batch in batches.items()
    }


def evaluated_keys(iterations: int, every: int) -> list[str]:
    """Return the iterations whose policies are evaluated: the base, every n-th, and the last."""
    return [iteration_key(i) for i in range(iterations + 1) if i % every == 0 or i == iterations]
