"""The section of params.yaml for environments of verifiers (package verifiers 0.4)."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator

from tasks.core.config.section import Section
from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.world_settings import MeanEpisode, WorldMetric, WorldSettings

_PINNED = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?==[\w.!+-]+")


def _pinned(requirement: str) -> str:
    if _PINNED.fullmatch(requirement) is None:
        raise ValueError(f"{requirement!r} is no NAME==VERSION: a world is played with pinned packages")
    return requirement


class VerifiersSplit(Section):
    """The tasks of the environment that belong to a split."""

    tasks: int = Field(60, ge=1)
    """Number of tasks."""
    settings: dict[str, JsonValue] = Field({})
    """Settings of the environment for this split alone, on top of `settings`. Such as {taskset: {split: test}}. Splits
    with equal settings share one stream of tasks, which `world.seed` shuffles and deals to them."""


class VerifiersSplits(Section):
    """The four splits."""

    train: VerifiersSplit = VerifiersSplit()
    """Tasks to train on."""
    dev: VerifiersSplit = VerifiersSplit(tasks=30)
    """Tasks to select a checkpoint by."""
    test_normal: VerifiersSplit = VerifiersSplit()
    """Tasks of Test-N."""
    test_challenge: VerifiersSplit = VerifiersSplit(tasks=30)
    """Tasks of Test-C."""


class VerifiersConfig(WorldSettings):
    """One environment of verifiers: its tasks, tools, user and rewards. All tasks have difficulty 1.

    A task is a scenario of its own, so that SGC equals TGC where tasks are played once. Of a stream of tasks each
    counts once: what equals another but for idx, id, name and description is left out, and refused where the two are
    in splits with other settings. The return is the sum of the weighted rewards, scaled to [0, 1].
    """

    own_metric: ClassVar[WorldMetric] = WorldMetric("reward", "return", 1)
    scenario_sizes: ClassVar[tuple[int, ...]] = (1,)
    mean_episode: ClassVar[MeanEpisode] = MeanEpisode(600, 4, 100, 100, 0.01, "assumed; the environment decides")

    environment: str = Field("", pattern=r"^[\w./@-]*$")
    """Id of the taskset, as verifiers' `eval` takes it: the name of a module that exports one Taskset, and an Env where
    it has one of its own. "": there is no world yet."""
    settings: dict[str, JsonValue] = Field({})
    """Settings of the environment. As verifiers' command line takes them after `--env.`, such as {taskset: {game:
    Wordle-v0}}."""
    packages: tuple[Annotated[str, AfterValidator(_pinned)], ...] = ()
    """Packages that are installed beside verifiers. Each as NAME==VERSION; what they need in turn is not pinned unless
    it is listed too."""
    folder: str = ""
    """Folder with modules of your own. It comes first on the path of the environment's interpreter, and its files
    count as inputs."""
    calls: Literal["json", "hermes"] = "json"
    """Form of tools, calls and answers in the prompt. json: a block of JSON; hermes: that of the chat templates of Qwen
    and Hermes. Calls are read in any of the known forms, whatever the prompt says."""
    max_turns: int = Field(10, ge=1)
    """Turns after which an episode ends by itself. It is scored as it stands, as with verifiers' own `max_turns`.
    `collection.limits.max_turns` must not be below it."""
    solved: float = 1.0
    """Least sum of rewards at which a task is solved."""
    lowest: float = 0.0
    """Sum of rewards that is the return 0."""
    highest: float = 1.0
    """Sum of rewards that is the return 1. Linear between the two, cut beyond."""
    solution: str = ""
    """Field of the tasks' data with the turns of a solution, for what recites: a text or a list of texts. "": there is
    none."""
    cpu_s: float = Field(60.0, gt=0)
    """Processor time that the environment may take in an episode, in seconds."""
    memory_mb: int = Field(512, ge=1)
    """Memory that it may take in an episode on top of what was loaded before."""
    splits: VerifiersSplits = VerifiersSplits()
    """Tasks of the environment that each split has."""

    @model_validator(mode="after")
    def _highest_is_above_lowest(self) -> "VerifiersConfig":
        if self.highest <= self.lowest:
            raise ValueError("highest must be above lowest")
        return self

    @property
    def most_turns(self) -> int:
        """As `max_turns`."""
        return self.max_turns

    @property
    def source_files(self) -> Path | None:
        """The folder with modules of one's own."""
        return Path(self.folder) if self.folder else None

    @property
    def task_counts(self) -> Mapping[Split, int]:
        """Those that `splits` names."""
        return {split: self.split(split).tasks for split in SPLITS}

    def split(self, name: Split) -> VerifiersSplit:
        """Return a split's part of the section."""
        part: VerifiersSplit = getattr(self.splits, name)
        return part

    @property
    def streams(self) -> list[dict[str, Any]]:
        """The different settings of the environment, in the order of the splits."""
        found: list[dict[str, Any]] = []
        for split in SPLITS:
            if (settings := self.stream_of(split)) not in found:
                found.append(settings)
        return found

    def stream_of(self, split: Split) -> dict[str, Any]:
        """Return the environment's settings in a split."""
        return merged(self.settings, self.split(split).settings)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `below` with the values of `above`, at any depth."""
    nested = {
        name: merged(below[name], value)
        for name, value in above.items()
        if isinstance(value, Mapping) and isinstance(below.get(name), Mapping)
    }
    return {**below, **above, **nested}
