"""One episode from its opening to its verdict: the conversation, the agent loop, and the rollout that comes out."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tasks.core.interfaces.engine import Generation, GenerationRequest, SamplingSettings
from tasks.core.interfaces.world import Evaluation, ExecutionTimeout, Message, Observation, ReadsThoughts, World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.schemas import TURN_COLUMNS
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.seeding import derive_seed

CUT_LINES = "[output cut: {count} lines left out]"
CUT_CHARACTERS = "[output cut: {count} characters left out]"


class ShownObservation(NamedTuple):
    """An observation as the policy sees it."""

    text: str
    ids: list[int]
    """To append to the conversation: `ChatFormat.continuation_ids` of the text."""


def shown_observation(
    chat: ChatFormat, text: str, ending: str = "", *, closed: bool, max_tokens: int
) -> ShownObservation:
    """An observation, of whose text at most `max_tokens` stay.

    Of a longer text the first lines and the last one stay, since errors come last. Where there is no room for two, its
    first characters and a third as many of its last ones stay. A note between them says how much is left out; it counts
    too. A budget smaller than the note leaves the note alone. `ending` follows whole and does not count.
    """

    def render(shown: str) -> ShownObservation:
        return ShownObservation(shown + ending, chat.continuation_ids(shown + ending, closed=closed))

    whole = render(text)
    if len(whole.ids) <= max_tokens:
        return whole
    budget = max_tokens + len(render("").ids)
    if len(whole.ids) <= budget:
        return whole

    def longest(limit: int, cut: Callable[[int], str]) -> int:
        return _longest(limit, lambda count: len(render(cut(count)).ids) <= budget)

    lines = text.splitlines()
    kept = longest(len(lines) - 2, lambda count: _without_lines(lines, count))
    if kept > 0:
        return render(_without_lines(lines, kept))
    kept = longest(len(text) * 3 // 4, lambda count: _without_characters(text, count))
    return render(_without_characters(text, kept))


def _without_lines(lines: list[str], first: int) -> str:
    """The first lines, so many, and the last one."""
    return "\n".join([*lines[:first], CUT_LINES.format(count=len(lines) - first - 1), lines[-1]])


def _without_characters(text: str, first: int) -> str:
    """The first characters, so many, and a third as many of the last."""
    last = first // 3
    note = CUT_CHARACTERS.format(count=len(text) - first - last)
    return text[:first] + note + text[len(text) - last :]


def _longest(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest count in 0 .. limit that fits, by bisection; 0 if none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


@dataclass
class Transcript:
    """The columns of `records.schemas.ROLLOUTS` that grow while an episode is played."""

    token_ids: list[int] = field(default_factory=list)
    policy_mask: list[bool] = field(default_factory=list)
    turn_index: list[int] = field(default_factory=list)
    engine_logprobs: list[float] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    turn_rewards: list[float] = field(default_factory=list)
    """One per turn in worlds that give rewards, else none at all."""
    turn_progress: list[float] = field(default_factory=list)
    """[turns] share of the unit tests that the world's state passes after each; empty where that is not measured."""
    tree_nodes: list[int] = field(default_factory=list)
    """[turns] the node of the task's tree to which each leads; empty where no tree is searched."""

    @property
    def played_turns(self) -> int:
        """Number of turns that were sampled and answered."""
        return len(self.turns)

    def columns(self) -> dict[str, Any]:
        """Columns by name; those with a value per turn only where there is any."""
        return {name: value for name, value in vars(self).items() if value or name not in TURN_COLUMNS}

    def add_context(self, ids: Sequence[int]) -> None:
        """Append ids that the policy did not sample."""
        self._extend(ids, sampled=False, turn=-1, logprobs=[0.0] * len(ids))

    def add_turn(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Append one sampled assistant turn; the one before must have had its reply."""
        self._extend(ids, sampled=True, turn=self.played_turns, logprobs=logprobs)

    def add_reply(self, observation: Observation) -> None:
        """Note how the world took the last sampled turn."""
        if observation.reward is not None or self.turn_rewards:
            self.turn_rewards.append(observation.reward or 0.0)
        self.turns.append(
            {
                "failed": observation.failed,
                "code_blocks": observation.code_blocks,
                "api_calls": list(observation.api_calls),
                "failed_api_calls": list(observation.failed_api_calls),
            }
        )

    def add_progress(self, share: float | None) -> None:
        """Note the share of unit tests that the last turn left passed; None, of a state that is lost, is the last."""
        held = self.turn_progress[-1] if self.turn_progress else 0.0
        self.turn_progress.append(held if share is None else share)

    def _extend(self, ids: Sequence[int], *, sampled: bool, turn: int, logprobs: Sequence[float]) -> None:
        self.token_ids.extend(ids)
        self.policy_mask.extend([sampled] * len(ids))
        self.turn_index.extend([turn] * len(ids))
        self.engine_logprobs.extend(logprobs)


@dataclass(frozen=True)
class EpisodeEnd:
    """The end of an episode, and the verdict if the world was asked for one."""

    end_reason: str
    """One of `schemas.END_REASONS`."""
    evaluation: Evaluation | None = None
    counts: bool = False
    """Whether the verdict is the rollout's return and success; else they are 0 and False."""
    fault: str = ""
    """The world's words when it broke. No column of rollouts: it may name processes and times."""

    @property
    def episode_return(self) -> float:
        """The rollout's return."""
        return self.evaluation.episode_return if self.evaluation is not None and self.counts else 0.0


EpisodeSteps = Generator[GenerationRequest, Generation, EpisodeEnd]
"""An episode that is being played: yields the turns that it wants sampled, and is sent them."""


@dataclass
class LiveRollout:
    """A rollout that is being played. One thread at a time has hold of it."""

    planned: PlannedRollout
    episode: EpisodeSteps | None = None
    """The present attempt."""
    transcript: Transcript = field(default_factory=Transcript)
    retries: int = 0
    clock: list[float] = field(default_factory=list)
    """When the present attempt was opened, and when each of its turns had its answer: seconds since the epoch."""

    @property
    def name(self) -> str:
        return self.planned.name

    def seed(self, *names: str | int) -> int:
        """The seed of a stream of this rollout; another one after every retry."""
        return derive_seed(self.planned.seed, self.retries, *names)

    @property
    def world_seed(self) -> int:
        """The seed of what is random in the world."""
        fixed = self.planned.world_seed
        return self.seed("world") if fixed is None else fixed

    def begin_again(self) -> None:
        """Forget what was played, after a world fault."""
        self.retries += 1
        self.transcript = Transcript()
        self.clock = []

    def close(self) -> None:
        """Close the episode. No thread may be playing it."""
        if self.episode is not None:
            self.episode.close()

    def row(self, end: EpisodeEnd) -> dict[str, Any]:
        """The row of `schemas.PLAYED_ROLLOUTS`, without what the whole collection has in common (policy, engine)."""
        task, evaluation = self.planned.task, end.evaluation
        return {
            "task_id": task.task_id,
            "scenario_id": task.scenario_id,
            "split": task.split,
            "difficulty": task.difficulty,
            "rollout_index": self.planned.rollout_index,
            "seed": self.planned.seed,
            **self.transcript.columns(),
            "return": end.episode_return,
            "success": evaluation is not None and end.counts and evaluation.success,
            "tests_passed": list(evaluation.passed) if evaluation else [],
            "tests_failed": list(evaluation.failed) if evaluation else [],
            "end_reason": end.end_reason,
            "world_retries": self.retries,
        }


class Conversation:
    """The conversation of one attempt at a rollout; the turns that it is given go into the rollout's transcript."""

    def __init__(
        self,
        rollout: LiveRollout,
        chat: ChatFormat,
        settings: PlaySettings,
        opening: list[Message],
        text_of: Callable[[Sequence[int]], str],
    ) -> None:
        """`text_of`: what of a turn's ids the world is given, as text."""
        self._rollout, self._chat, self._settings, self._text_of = rollout, chat, settings, text_of
        self._messages = list(opening)
        self._context = chat.prompt_ids(opening)
        self._turn_closed = False

    def next_turn(self) -> GenerationRequest:
        """The request for the policy's next turn."""
        rollout, settings = self._rollout, self._settings
        temperature = rollout.planned.temperature or settings.temperature
        return GenerationRequest(
            rollout.name,
            rollout.transcript.token_ids + self._context,
            SamplingSettings(
                temperature,
                settings.limits.max_tokens_per_turn,
                self._chat.stop_ids,
                top_k=settings.top_k,
                top_p=settings.top_p,
            ),
            rollout.seed("turn", rollout.transcript.played_turns),
            rollout.planned.task.task_id,
            tuple(self._messages),
        )

    def add_turn(self, generation: Generation) -> str:
        """Append what stays of a sampled turn (see `ChatFormat.kept_ids`). Returns what the world is given."""
        ids = self._chat.kept_ids(generation.token_ids)
        self._rollout.transcript.add_turn(ids, generation.logprobs[: len(ids)])
        self._turn_closed = self._chat.closes(ids)
        text = self._text_of(ids)
        self._messages.append({"role": "assistant", "content": text})
        return text

    def add_observation(self, observation: Observation) -> None:
        """Append what the world said to the last turn, cut to the budget of an observation."""
        limit = self._settings.limits.max_observation_tokens
        shown = shown_observation(
            self._chat, observation.text, observation.ending, closed=self._turn_closed, max_tokens=limit
        )
        self._messages.append({"role": "user", "content": shown.text})
        self._context = shown.ids


def play_episode(rollout: LiveRollout, world: World, chat: ChatFormat, settings: PlaySettings) -> EpisodeSteps:
    """Play one episode of the rollout's task. Blocks while the world works; closes the episode however it ends.

    It adds the turns that it is sent to `rollout.transcript`; the ids that each goes on from are there by then. A turn
    with the stop reason "context" was never sampled. Raises WorldFault, and what is a bug of the world.
    """
    with closing(world.open(rollout.planned.task.task_id, rollout.world_seed)) as episode:
        text_of = chat.whole_turn if isinstance(world, ReadsThoughts) and world.reads_thoughts else chat.answer
        conversation = Conversation(rollout, chat, settings, episode.prompt, text_of)
        while True:
            generation = yield conversation.next_turn()
            if generation.stop_reason == "context":
                return EpisodeEnd("context_limit", episode.evaluate(), settings.judge_unfinished)
            try:
                observation = episode.step(conversation.add_turn(generation))
            except ExecutionTimeout:
                rollout.transcript.add_reply(Observation("", done=True, failed=True))
                if settings.turn_progress:
                    rollout.transcript.add_progress(None)
                return EpisodeEnd("execution_timeout")
            rollout.transcript.add_reply(observation)
            if settings.turn_progress:
                rollout.transcript.add_progress(episode.evaluate().episode_return)
            if observation.done:
                return EpisodeEnd("completed", episode.evaluate(), counts=True)
            if rollout.transcript.played_turns == settings.limits.max_turns:
                return EpisodeEnd("turn_limit", episode.evaluate(), settings.judge_unfinished)
            conversation.add_observation(observation)


class Collector:
    """A way to gather rollouts: each planned rollout is one episode, and nothing follows it.

    Subclasses may put something around episodes and plan more of them. Picklable, so that each worker has its own.
    """

    def begin(self, rollout: LiveRollout, world: World, chat: ChatFormat, settings: PlaySettings) -> EpisodeSteps:
        """Return an episode of `rollout`, as `play_episode` does; called again after a world fault."""
        return play_episode(rollout, world, chat, settings)

    def after(self, planned: PlannedRollout, end: EpisodeEnd) -> PlannedRollout | None:
        """Return the rollout to play because `planned` is over; None: nothing follows."""
        return None


ONE_EPISODE_EACH = Collector()
