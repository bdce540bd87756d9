"""The sections `tasks` and `collection` of params.yaml: the tasks that train, and how their rollouts are gathered."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tasks.core.config.section import Section

Temperatures = tuple[Annotated[float, Field(gt=0)], ...]
Shards = Annotated[int, Field(ge=1)] | Literal["auto"]
TaskDrawing = Literal["weighted", "coverage", "decks"]


class AgentLimits(Section):
    """Budgets of one episode."""

    max_turns: int = Field(40, ge=1)
    """Turns of an episode."""
    max_tokens_per_turn: int = Field(1500, ge=1)
    """Tokens of one turn."""
    max_observation_tokens: int = Field(3000, ge=1)
    """Tokens of one observation. A longer one is cut, with a note that says so."""


class ChangedLimits(Section):
    """Turns that differ from other ones; null: the same. A turn and an observation are as long as in training."""

    constants: ClassVar[Mapping[str, str]] = {
        "max_tokens_per_turn": "that of collection.limits",
        "max_observation_tokens": "that of collection.limits",
    }

    max_turns: int | None = Field(None, ge=1)
    """Turns of an episode."""

    def of(self, limits: AgentLimits) -> AgentLimits:
        """Return `limits` with these changes."""
        return limits.model_copy(update=self.model_dump(exclude_none=True))


class EarlyStop(Section):
    """Cut the longest rollouts: enough are in when every task has `min_per_task` and `share` of all are in.

    With an engine in process, length is counted in sampled tokens, and the rollouts beyond the least length that is
    enough are cut, whatever the number of shards and of concurrent episodes. With a server those are cut that end last
    by the clock; each of `collection.shards` counts its own there.
    """

    min_per_task: int = Field(4, ge=2)
    """Rollouts that every task must have."""
    share: float = Field(0.9, gt=0, le=1)
    """Share of all rollouts that must be in."""


class TreeConfig(Section):
    """A search over turns in place of rollouts: one tree for each task, its nodes the turns (LOOP paper, C.4)."""

    constants: ClassVar[Mapping[str, str]] = {"exploration": "the root of 2"}

    simulations: int = Field(30, ge=2)
    """Most episodes in one tree. Fewer are played where every candidate of every turn was tried, which in a world of
    chance says nothing yet, since Q is a mean over luck there."""
    candidates: int = Field(2, ge=2)
    """Turns sampled at one node. When all are there, the bound decides with which of them an episode goes on."""


class CollectionConfig(Section):
    """Rollouts of one iteration. The paper: 40 tasks x 6 rollouts at temperature 1."""

    renamed: ClassVar[Mapping[str, str]] = {
        "live_episodes": "max_concurrent_episodes",
        "engine": "engine.name",
        "chat_api": "engine.chat_api",
    }

    tasks_per_iteration: int = Field(24, ge=1)
    """Tasks drawn for an iteration."""
    rollouts_per_task: int = Field(6, ge=2)
    """Rollouts of each, the group of leave-one-out."""
    task_drawing: TaskDrawing = "weighted"
    """How an iteration's tasks are drawn. weighted: by their weights, none twice as long as there are enough. coverage:
    so too, each weight times the probability that the task's group of rollouts carries a signal, as the iterations
    before tell it (see `tasks.core.signal_coverage`). decks, as in apple/ml-loop: for each the difficulty first (50/50
    with `tasks.equal_difficulties` and two of them), then the next task of that difficulty's shuffled deck, which goes
    on from iteration to iteration and is shuffled anew when it is used up; a task that comes twice has twice as many
    rollouts."""
    judge_unfinished: bool = False
    """Judge an episode that ran out of turns or context. It has its share of unit tests then, and is solved when all
    pass, as in apple/ml-loop, in training and evaluation. False: its return is 0, as in the paper."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature of training rollouts."""
    temperatures: Temperatures = ()
    """Temperatures that a task's rollouts take one after another. RFT has 20 of them from 0.05 to 1. For supervised
    objectives alone: the learner computes log-probs at `temperature`."""
    demonstrations: bool = False
    """Recite the world's own solutions in place of sampling. The engine `oracle` does so. Evaluation samples from the
    policy."""
    turn_progress: bool = False
    """Run the task's unit tests after every turn. The share that passes is kept, for `advantages.estimator:
    turn_progress`."""
    every: int = Field(1, ge=0, strict=True)
    """Collect in every n-th iteration only, and train on it until the next. The first is one of them; 0: the first
    alone. Older rollouts are corrected for as stale ones are. Changes the section `dag`: set it by `loopline
    configure --refresh --set collection.every=0`."""
    tree: TreeConfig | None = None
    """Search trees in place of rollouts (DPO-MCTS). The stages `search_trees` and `pair_turns` run in place of
    `collect_rollouts` and `filter_advantages`. Changes the section `dag`: set it by `loopline configure`, best by
    the profile `dpo_mcts`."""
    limits: AgentLimits = AgentLimits()
    """Budget of every episode. `evaluation.limits` says where evaluation differs."""
    early_stop: EarlyStop | None = EarlyStop()
    """Stop when nearly all rollouts are in. null: wait for all."""
    max_concurrent_episodes: int = Field(144, ge=1)
    """Episodes that are open at once. Changes no byte with the engine `transformers` on a CPU."""
    shards: Shards = 1
    """Parts in which rollouts are played. Whole tasks, and a share of `max_concurrent_episodes`. auto: as many as
    `machines` plays at once. Changes no byte with the engine `transformers` on a CPU."""
    staleness: int = Field(0, ge=0, strict=True)
    """Updates that the sampling policy may lag behind. 0: strictly on-policy, as in the paper. 1: asynchronous
    collection; an iteration's rollouts do not wait for the update before, and `update.loss.max_behaviour_weight` bounds
    the weight that corrects for it. Changes the section `dag`: set it by `loopline configure --refresh --set
    collection.staleness=1`."""
    world_retries: int = Field(1, ge=0)
    """Times that a rollout is played again after a world error. Then it is recorded as lost."""


class TaskFilterConfig(Section):
    """The tasks that stay. The paper drops difficulty 3 and draws difficulties 1 and 2 with equal probability."""

    max_difficulty: int = Field(2, ge=1, le=3)
    """Hardest tasks that train."""
    denylist: tuple[str, ...] = ()
    """Ids of broken tasks. They are neither trained nor, on dev, evaluated on. An unknown id is an error."""
    equal_difficulties: bool = True
    """Draw every difficulty equally often. False: every task."""
