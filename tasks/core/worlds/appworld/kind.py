"""The face of AppWorld: write Python against nine apps of a phone."""

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasks.core.config.kinds import Late
from tasks.core.config.splits import Split, TaskCount, TaskCounts
from tasks.core.config.world_settings import MeanEpisode, WorldSettings
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.interpreters import InterpreterRecipe

ROOTS = Path(".loopline/appworld_roots")
"""Archives of roots that were authored here, and roots unpacked; may be deleted at any time."""
OFFICIAL_COUNTS: Mapping[Split, int] = {"train": 105, "dev": 60, "test_normal": 168, "test_challenge": 417}
"""Tasks of the official splits; 3 of dev are unusable."""


class AuthoredCounts(TaskCounts):
    """Tasks per split of an authored AppWorld root."""

    train: TaskCount = 36
    dev: TaskCount = 18
    test_normal: TaskCount = 36
    test_challenge: TaskCount = 36


class AppWorldConfig(WorldSettings):
    """Origin of AppWorld's tasks."""

    standing_date: ClassVar = datetime.date(2023, 5, 18)
    mean_episode: ClassVar = MeanEpisode(2500, 18, 120, 350, 0.1, "assumed")

    source: Literal["official", "authored"] = "authored"
    """Origin of the tasks. official: the downloaded data at `root`; authored: scenarios of our own, generated from
    `world.seed`."""
    root: Path | None = None
    """Folder that holds the official `data` folder. null when authored."""
    counts: AuthoredCounts = AuthoredCounts()
    """Tasks per split of an authored root. An official root has the tasks that it has."""
    denylist: tuple[str, ...] = ()
    """Ids of broken tasks, which no split offers. An id that the data does not list is logged and is no error, so that
    the ids that are known to be broken can be named whatever the data. apple/ml-loop names 3ab5b8b_3 and 37a8675_1,
    both of dev, and then plays them all the same."""
    engine: Literal["pool", "official"] = "pool"
    """How tasks are held. pool: warm forked processes, agents' code apart from the data; official: the package's HTTP
    server."""
    official_rule: bool = False
    """Judge the end of a task as the package does. It counts a task without a question as solved although the agent
    ended it with status "fail"."""
    demonstrated_turns: int | None = Field(8, ge=1)
    """Most turns of a recited solution. The last one, which completes the task, is not counted. The solution's
    top-level statements are divided evenly among them. The paper's usual episode has 8. null: a turn for each
    statement, as the LOOP paper's SFT-GT has it."""
    reminder: Literal["rules", "task"] = "rules"
    """End of every observation. The rules in short, or the whole task once more, as in apple/ml-loop (the supervisor's
    name, address and number, and the instruction)."""

    @property
    def task_counts(self) -> Mapping[Split, int]:
        """As `counts` for an authored root, else the benchmark's own."""
        return self.counts.by_split if self.source == "authored" else OFFICIAL_COUNTS

    @property
    def source_files(self) -> Path | None:
        """The part of an official root that is only read."""
        return None if self.root is None else self.root / "data"

    @model_validator(mode="after")
    def _root_fits_source(self) -> Self:
        if (self.source == "official") != (self.root is not None):
            raise ValueError("root must name the data when source is official, and be null when it is authored")
        return self


APPWORLD = InterpreterRecipe(
    name="appworld",
    requirements=Path(__file__).with_name("requirements.txt"),
    python=">=3.11,<3.13",
    setup=("appworld.cli", "install"),
    check="import appworld.environment, appworld.evaluator; appworld.apps.build_main_app()",
    variables=(("APPWORLD_CACHE", "{folder}/cache"), ("APPWORLD_ROOT", "{folder}/cache")),
)
"""AppWorld needs pydantic < 2, so it can't share the pipeline's interpreter. Made in about 15 s."""

WORLD = WorldKind(
    settings=AppWorldConfig,
    write=Late("tasks.core.worlds.appworld.prepared_root:write_appworld"),
    open=Late("tasks.core.worlds.appworld.world:open_appworld"),
    recipe=Late("tasks.core.worlds.appworld.recipe:RECIPE"),
    interpreters=(APPWORLD,),
    kept_folders=(ROOTS,),
    write_results=Late("tasks.core.worlds.appworld.export:write_trials"),
    export=Late("tasks.core.worlds.appworld.export:export"),
)
