"""The face of a world: everything that the pipeline knows of it. See `WorldKind`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tasks.core.config.kinds import Late
from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.world import WORLDS, CodeBlocks, WorldSection
from tasks.core.config.world_settings import WorldSettings
from tasks.core.interfaces.world import Message, World
from tasks.core.interpreters import InterpreterRecipe

S = TypeVar("S", bound=WorldSettings)


class Demonstrations(Protocol):
    """A source of scripted play that a policy can be trained on, other than the solutions of the world's own tasks."""

    def __call__(self, seed: int, count: int, *, imperfect: bool) -> Iterable[list[Message]]:
        """Give `count` conversations: system and user, then assistant and user in turn, an assistant's at the end."""
        ...


@dataclass(frozen=True)
class ScoredEpisode:
    """An episode of scoring, as it is recorded."""

    task_id: str
    turns: tuple[str, ...]
    """The assistant's texts."""
    success: bool
    passed: Sequence[str]
    """Requirements that it met; see `Evaluation`."""
    failed: Sequence[str]
    trial: int = 0
    """Which of the task's runs it is."""
    seed: int = 0
    """The seed that the world was opened with."""


@dataclass(frozen=True)
class ScoredRun(Generic[S]):
    """Episodes of one split that are exported for the package that the world comes from."""

    settings: S
    code_blocks: CodeBlocks
    world: Path
    """The folder that `WorldKind.write` wrote."""
    split: Split
    episodes: Sequence[ScoredEpisode]
    folder: Path
    """Folder to write, which does not have to exist."""


@dataclass(frozen=True)
class ScoredTrials(Generic[S]):
    """All episodes of a scored model, for the results file of the package that the world comes from."""

    settings: S
    code_blocks: CodeBlocks
    """As the knob of this name: the part of a turn that was run."""
    world: Path
    """The folder that `WorldKind.write` wrote."""
    split: str
    """As `WorldKind.splits` knows it."""
    episodes: Sequence[ScoredEpisode]
    trials: int
    """Runs of each task."""
    model: str
    temperature: float
    git_commit: str
    """ "": git did not say."""
    cost: float
    """US dollars for the model's turns, the mean of an episode."""
    world_cost: float
    """The same for what the world paid for."""
    folder: Path
    """A new folder, to be made where there is something to write."""


@dataclass(frozen=True)
class PackageVerdicts:
    """Verdicts of the package that a world comes from on exported episodes."""

    judge: str
    """The command or the package that judged, "appworld evaluate"."""
    solved: Mapping[str, bool]
    """Whether a task is solved, by the package."""
    ours: Mapping[str, bool]
    """The same from our record, by the package's own rule: where the two differ, one of us is wrong."""
    rule: str = ""
    """The package's rule in words, where it is not ours."""
    figures: tuple[float, float] | None = None
    """TGC and SGC as the package reckons them; None: it reckons none."""


def _nothing(*_: Any) -> None:
    """Do nothing: most worlds are paid for nothing and come from no package."""


VARIANTS = ("", "imitation", "successes")
"""Ways to follow a recipe: with all its flawed demonstrations, with none, or with those that solve their task."""


class PolicyRecipe(Protocol):
    """The settings of an embedded base policy, a subclass of `tasks.core.policies.recipe.Recipe`."""

    def variant(self, name: str) -> "PolicyRecipe":
        """Return the recipe as one of `VARIANTS` follows it."""
        ...

    def make(self) -> tuple[Any, Any]:
        """Train the policy; return the model and its tokenizer, as transformers has them."""
        ...


@dataclass(frozen=True)
class WorldKind(Generic[S]):
    """The face of a world. A world is one folder, or one installed package, and this is all that others know of it.

    A folder `tasks/core/worlds/NAME/` has a module `kind.py`, which ends with `WORLD = WorldKind(...)`. A package names
    that value in an entry point of the group `loopline.worlds`, under the world's name:

        WORLD = WorldKind(
            settings=SokobanConfig,
            write=Late("tasks.core.worlds.sokoban.world:write_sokoban"),
            open=Late("tasks.core.worlds.sokoban.world:open_sokoban"),
        )

    These three are all that a world needs; everything below them has a default. The module is imported whenever
    params.yaml is read, so it imports no torch, server or package of its own: `Late` imports those when they are used.
    `settings` is the class of the section `world.NAME` of params.yaml: its docstring and those below its fields are the
    world's page of knobs. What others must know of the world without running it stands there too: its own metric, the
    mean episode, the numbers of tasks, the most turns of an episode, the files that knobs name, the day on which its
    clock stands (tasks/core/config/world_settings.py).

    A world can do more by what `open` returns, see tasks/core/interfaces/world.py: `Demonstrating` recites solutions,
    for the engines oracle and scripted; `OfChance` has luck in it; `ReadsThoughts` reads thoughts; `Paying`
    asks models that are paid for.

    No code outside of the world's folder names the world, and it imports no other world. What several worlds share is
    a package below them, such as tasks/core/text_games. The code that plays it, and so what makes rollouts stale, is
    the folder and what its modules import; of a package, all files of its distribution. Modules and folders called
    `authoring`, `demonstrations`, `habits`, `recipe` or `teacher` make its tasks or scripted play: they count where
    they are imported by those that play.
    """

    settings: type[S]
    """Class of the section `world.NAME` of params.yaml."""
    write: Callable[[S, int, Path], None]
    """Generate the tasks from a seed (`world.seed`) and write them to a folder, whole or not at all.

    Equal settings and seeds write equal bytes. `tasks.core.records.files.replacing` writes a folder whole."""
    open: Callable[[S, CodeBlocks, Path], World]
    """Open what `write` wrote. Raises ArtifactError naming file, line and rule.

    `code_blocks` says which code blocks of a turn run, where agents write code (see `tasks.core.code_blocks`)."""
    demonstrations: Demonstrations | None = None
    """Scripted play for a warm start (`policy.warm_start`); None: a `Demonstrating` world recites the solutions of its
    training tasks."""
    recipe: Late | None = None
    """How the embedded policy of this world is trained (`policy.source: recipe`), a `PolicyRecipe`."""
    interpreters: tuple[InterpreterRecipe, ...] = ()
    """Interpreters of its own that it makes on first use; `loopline doctor` lists them."""
    kept_folders: tuple[Path, ...] = ()
    """Folders, relative to the project's root, with what takes minutes to make and may be deleted at any time; the
    workspaces of a study share them."""
    own_splits: Mapping[str, tuple[Split, ...]] = field(default_factory=dict)
    """Names that the world's package has for our splits, or for several of them: {"test": ("test_normal",)}."""
    forget: Callable[[S, Iterable[str]], None] = _nothing
    """Discard what the world has paid for on these tasks, because their result is written now."""
    write_results: Callable[[ScoredTrials[S]], None] = _nothing
    """Write a score as the package that the world comes from has it; what was paid for is still kept."""
    export: Callable[[ScoredRun[S]], PackageVerdicts | None] = _nothing
    """Write the episodes to `run.folder` as the package that the world comes from has them, and let it judge them.

    None: there is no such package. Raises ArtifactError for a folder that cannot be taken."""

    def splits(self, name: str) -> tuple[Split, ...]:
        """Return our splits that are meant by one of our names or by the package's own. Raises ValueError."""
        if name in SPLITS:
            return (name,)
        if name not in self.own_splits:
            raise ValueError(f"no split is called {name!r}; there are {', '.join([*SPLITS, *self.own_splits])}")
        return self.own_splits[name]


def find_world(name: str) -> WorldKind[Any]:
    """Return the face of the world `name`. Raises UnknownKind."""
    found: WorldKind[Any] = WORLDS.find(name)
    return found


def prepare_world_folder(section: WorldSection, folder: Path) -> None:
    """Generate the world's tasks from `section.seed` and write them to `folder`, whole or not at all."""
    find_world(section.name).write(section.settings, section.seed, folder)


def open_world(section: WorldSection, folder: Path) -> World:
    """Open the world that `prepare_world_folder` wrote. Raises ArtifactError naming file, line and rule."""
    return find_world(section.name).open(section.settings, section.code_blocks, folder)
