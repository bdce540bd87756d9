"""The face of servers that speak OpenEnv: do whatever a server offers."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from tasks.core.config.kinds import Late
from tasks.core.config.section import UNVERSIONED, Section
from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.world_settings import MeanEpisode, WorldSettings
from tasks.core.interfaces.world_kind import WorldKind

Reset = dict[str, JsonValue]


class OpenEnvTask(Section):
    """One task of a scenario."""

    reset: Reset = Field({"seed": "$seed"})
    """Arguments of the server's reset. "$seed" stands for a number that `world.seed` draws for the task, "$index" for
    its place among those that its entry of the split makes, from `first` on, "$rollout_seed" for a rollout's own
    number."""
    solution: tuple[str, ...] = ()
    """The turns of a solution, for what recites; none: the task has none to show."""


class OpenEnvScenario(Section):
    """A scenario of three or four tasks, or `count` of them that differ in what `$seed` and `$index` stand for."""

    instruction: str = Field(min_length=1)
    """The task, as reports list it; the first message begins with it, unless `prompt` is set."""
    difficulty: int = Field(1, ge=1, le=3)
    count: int = Field(1, ge=1)
    first: int = Field(0, ge=0)
    """The `$index` of the first task."""
    tasks: tuple[OpenEnvTask, ...] = Field((OpenEnvTask(),) * 3, min_length=3, max_length=4)


class OpenEnvSplits(Section):
    """The episodes of a server that belong to each split; the protocol has no splits of its own."""

    train: tuple[OpenEnvScenario, ...] = ()
    """Scenarios of train."""
    dev: tuple[OpenEnvScenario, ...] = ()
    """Scenarios of dev."""
    test_normal: tuple[OpenEnvScenario, ...] = ()
    """Scenarios of Test-N."""
    test_challenge: tuple[OpenEnvScenario, ...] = ()
    """Scenarios of Test-C."""


class OpenEnvVerdict(Section):
    """The verdict on an episode: by fields of its last observation where they are named, else by the sum of rewards."""

    success: str = ""
    """Field that is true when the task is solved."""
    score: str = ""
    """Field with a grade in [0, 1]."""
    lowest: float = 0.0
    """Sum of an episode's rewards that is the score 0."""
    highest: float = 1.0
    """Sum of an episode's rewards that is the score 1. Linear between the two, cut beyond."""
    solved: float = 1.0
    """Least sum of rewards at which the task is solved."""


class OpenEnvConfig(WorldSettings):
    """Any OpenEnv server as a world. It runs already; a session of it is an episode.

    A field of an observation is named by its path: `text`, `messages.0.content`. What is text is shown as it is, other
    values as JSON. A turn's reward is the step's. A server gives one with every step, or with the last one alone, and
    then the turns before have 0; any other null, which NaN is sent as, is an error that names the episode.
    """

    constants: ClassVar[Mapping[str, str]] = {"connect_s": "10"}
    mean_episode: ClassVar = MeanEpisode(600, 10, 40, 120, 0.01, "assumed; the server decides")

    url: Annotated[str, UNVERSIONED] = Field("http://127.0.0.1:8000", pattern="^https?://")
    """Address of the server. The world that plays there is in no stage's version and in no lineage, unless `version`
    names it: after a change on the server, `dvc repro -f`."""
    version: str | None = Field(None, min_length=1)
    """Version that the server must tell at /metadata. Ours (`loopline serve`) tells the digest of its
    tasks; null: any. Another one is refused; stages run again when this changes."""
    answer_s: Annotated[float, UNVERSIONED] = Field(60.0, gt=0)
    """Longest wait for an answer, in seconds. A server that takes longer hangs: the episode is void (a world error)."""
    prompt: str = ""
    """Field of reset's observation with the opening chat messages. "": the instruction and that observation."""
    observation: tuple[str, ...] = ()
    """Fields that the agent is shown, one below the other. None: all except `metadata`, as `name: value`."""
    action: dict[str, JsonValue] = Field({})
    """Message of a step. A step's message, such as {message: $text}. "$text" stands for the text that `reads` finds in
    the turn, "$json" for the JSON that this text is. A turn without it, or whose action the server refuses, is a bad
    turn."""
    reads: Literal["turn", "answer", "code"] = "turn"
    """Part of a turn that is the action. The whole turn, its first `<answer>...</answer>`, or its code by the rule of
    `world.code_blocks`."""
    verdict: OpenEnvVerdict = OpenEnvVerdict()
    """How an episode is judged."""
    max_turns: int = Field(30, ge=1)
    """Turns after which an episode ends by itself. Many a server never ends one. `collection.limits.max_turns` must not
    be below it."""
    splits: OpenEnvSplits = OpenEnvSplits()
    """Episodes of the server that each split has."""

    @property
    def most_turns(self) -> int:
        """As `max_turns`."""
        return self.max_turns

    @property
    def task_counts(self) -> Mapping[Split, int]:
        """Those that `splits` names."""
        return {
            split: sum(scenario.count * len(scenario.tasks) for scenario in getattr(self.splits, split))
            for split in SPLITS
        }


WORLD = WorldKind(
    settings=OpenEnvConfig,
    write=Late("tasks.core.worlds.openenv.conversation:write_openenv"),
    open=Late("tasks.core.worlds.openenv.world:open_openenv"),
)
