"""The `collection` section of params.yaml: the agent loop and how rollouts are gathered."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tasks.core.config.chat_api import ChatApiConfig
from tasks.core.config.section import Section

Temperatures = tuple[Annotated[float, Field(gt=0)], ...]
EngineName = Literal["transformers", "vllm", "oracle", "scripted", "chat_api"]
SAMPLING_ENGINES: frozenset[EngineName] = frozenset({"transformers", "vllm"})
"""Those that sample from the run's own policy: the others recite, or ask a model behind an API."""
TaskDrawing = Literal["weighted", "coverage", "decks"]


class AgentLimits(Section):
    """Budgets of one episode."""

    max_turns: int = Field(40, ge=1)
    max_tokens_per_turn: int = Field(1500, ge=1)
    max_observation_tokens: int = Field(3000, ge=1)
    """Longer observations are cut, with a note that says so."""


class ChangedLimits(Section):
    """Budgets that differ from other ones; null: the same."""

    max_turns: int | None = Field(None, ge=1)
    max_tokens_per_turn: int | None = Field(None, ge=1)
    max_observation_tokens: int | None = Field(None, ge=1)

    def of(self, limits: AgentLimits) -> AgentLimits:
        """`limits` with these changes."""
        return limits.model_copy(update=self.model_dump(exclude_none=True))


class EarlyStop(Section):
    """Stop collecting when every task has `min_per_task` rollouts and `share` of all are in.

    Each of `collection.shards` counts its own rollouts. Over all shards, as apple/ml-loop counts over its ranks, who is
    cut would depend on which shard is faster, so on the clock; one shard is the rule over all of an iteration.
    """

    min_per_task: int = Field(4, ge=2)
    share: float = Field(0.9, gt=0, le=1)


class TreeConfig(Section):
    """A search over turns in place of rollouts: one tree for each task, its nodes the turns (LOOP paper, C.4)."""

    simulations: int = Field(30, ge=2)
    """Episodes played in one tree, at most: fewer where every candidate of every turn was tried, which in a world of
    chance says nothing yet, since Q is a mean over luck there."""
    candidates: int = Field(2, ge=2)
    """Turns sampled at one node. When all are there, the bound decides with which of them an episode goes on."""
    exploration: float = Field(2**0.5, ge=0)
    """Weight of the upper confidence bound's width beside Q. The root of 2 is UCB1's own for returns in [0, 1]; the
    LOOP paper states none."""


class CollectionConfig(Section):
    """Rollouts of one iteration. The paper: 40 tasks x 6 rollouts at temperature 1."""

    renamed: ClassVar[Mapping[str, str]] = {"live_episodes": "max_concurrent_episodes"}

    engine: EngineName = "transformers"
    """vllm: servers, set up in the section `engine`. oracle recites the world's own solutions, scripted does so with
    seeded flaws: the pipeline without a model. chat_api asks a model behind an OpenAI-compatible API, which can be
    scored (iterations: 0) but not trained."""
    chat_api: ChatApiConfig = ChatApiConfig()
    tasks_per_iteration: int = Field(24, ge=1)
    rollouts_per_task: int = Field(6, ge=2)
    task_drawing: TaskDrawing = "weighted"
    """How an iteration's tasks are drawn. weighted: by their weights, none twice as long as there are enough. coverage:
    so too, each weight times the probability that the task's group of rollouts carries a signal, as the iterations
    before tell it (see `tasks.core.signal_coverage`). decks, as in apple/ml-loop: for each the difficulty first (50/50
    with `tasks.equal_difficulties` and two of them), then the next task of that difficulty's shuffled deck, which goes
    on from iteration to iteration and is shuffled anew when it is used up; a task that comes twice has twice as many
    rollouts."""
    judge_unfinished: bool = False
    """Give an episode that ran out of turns or context its share of unit tests, and count it as solved when all pass,
    as apple/ml-loop does, in training and evaluation. False: its return is 0, as in the paper."""
    temperature: float = Field(1.0, gt=0)
    temperatures: Temperatures = ()
    """Temperatures of a task's rollouts in turn, in place of the one (RFT: 20 of them from 0.05 to 1). The learner's
    log-probs are those at `temperature` all the same: for supervised objectives."""
    demonstrations: bool = False
    """Recite the world's own solutions (as `engine: oracle` does) in place of sampling, here and not in evaluation."""
    turn_progress: bool = False
    """Run the task's unit tests after every turn, and keep the share that passes, for `advantages.estimator:
    turn_progress`."""
    every: int = Field(1, ge=0, strict=True)
    """Collect rollouts in every n-th iteration only, beginning with the first, and train on them until the next; 0: on
    the first iteration's throughout. Older rollouts are corrected for as stale ones are. Changes the maps `previous`
    and `collected`: set it by `python -m flows.configure --refresh --set collection.every=0`."""
    tree: TreeConfig | None = None
    """Search a tree of every drawn task in place of its `rollouts_per_task` (DPO-MCTS): the stages `search_trees` and
    `pair_turns` run in place of `collect_rollouts` and `filter_advantages`. Changes the maps `collected` and
    `searched`: set it by `python -m flows.configure`, best by the profile `dpo_mcts`."""
    limits: AgentLimits = AgentLimits()
    """Limits of every episode that is played; `evaluation.limits` says where evaluation differs."""
    early_stop: EarlyStop | None = EarlyStop()
    max_concurrent_episodes: int = Field(144, ge=1)
    """How many episodes are open at once."""
    shards: int = Field(1, ge=1)
    """Parts in which rollouts are played: whole tasks, and a share of `max_concurrent_episodes`. Each stops by itself.

    It decides the bytes, since a batch's make-up does; where the parts are played does not.
    """
    staleness: int = Field(0, ge=0, strict=True)
    """Updates that the policy which samples an iteration's rollouts may lack of the one that learns from them.

    0: strictly on-policy, as in the paper. 1: asynchronous collection; an iteration's rollouts do not wait for the
    update before, and `update.loss.max_behaviour_weight` bounds the weight that corrects for it. Changes the map
    `previous`: set it by `python -m flows.configure --refresh --set collection.staleness=1`.
    """
    world_retries: int = Field(1, ge=0)
    """How often a rollout that a world fault voided is played again before it is recorded as lost."""
