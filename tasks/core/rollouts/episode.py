"""One episode from its opening to its verdict: the conversation, the agent loop, and the rollout that results."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tasks.core.interfaces.asking import Asking
from tasks.core.interfaces.engine import Generation, GenerationRequest, SamplingSettings
from tasks.core.interfaces.world import (
    Evaluation,
    ExecutionTimeout,
    Message,
    Observation,
    ReadsThoughts,
    World,
    WorldFault,
)
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.rollouts.asked_turns import LIMITS, AskedTurns
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.rollouts.transcript import Transcript
from tasks.core.seeding import derive_seed

WORLD_SEED = "world"
"""Name of the random stream of a rollout's world."""
CUT_LINES = "[output cut: {count} lines left out]"
CUT_CHARACTERS = "[output cut: {count} characters left out]"


def play_episode(rollout: "LiveRollout", world: World, chat: ChatFormat, settings: PlaySettings) -> "EpisodeSteps":
    """Play one episode of the rollout's task. Blocks while the world works; always closes the episode.

    Appends each turn that it is sent to `rollout.transcript`. A turn with the stop reason "context" was never sampled.
    Raises WorldFault; any other exception is a bug in the world.
    """
    with closing(world.open(rollout.planned.task.task_id, rollout.world_seed)) as episode:
        if isinstance(episode, Asking):
            return (yield from play_asking(rollout, episode, chat, settings))
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


def play_asking(rollout: "LiveRollout", episode: Asking, chat: ChatFormat, settings: PlaySettings) -> "EpisodeSteps":
    """Play an episode whose own program asks for turns, as `play_episode` does.

    A limit is told to the program as an error. It may end well after that; if it breaks, the limit ended the episode.
    """
    turns, limit = AskedTurns(rollout.planned, chat, settings), ""
    try:
        while (ask := episode.next_ask()) is not None:
            refused = turns.refusal(ask)
            if refused is None:
                generation = yield turns.request(ask, rollout.name, rollout.seed)
                refused = turns.too_long(ask) if generation.stop_reason == "context" else None
            if refused is None:
                said = turns.add(ask, generation)
                rollout.transcript = turns.transcript
                episode.answer(said)
            else:
                limit = limit or LIMITS.get(refused.code or "", "")
                episode.answer(refused)
    except WorldFault:
        if not limit:
            raise
        return EpisodeEnd(limit, episode.evaluate(), settings.judge_unfinished)
    verdict = episode.evaluate()
    if settings.turn_progress:
        rollout.transcript.turn_progress = [0.0] * (len(turns) - 1) + [verdict.episode_return] * bool(turns)
    return EpisodeEnd("completed", verdict, counts=True)


class ShownObservation(NamedTuple):
    """An observation as the policy sees it."""

    text: str
    ids: list[int]
    """Token ids to append to the conversation: `ChatFormat.continuation_ids` of the text."""


def shown_observation(
    chat: ChatFormat, text: str, ending: str = "", *, closed: bool, max_tokens: int
) -> ShownObservation:
    """Return an observation as the policy sees it, with at most `max_tokens` tokens of its text.

    A longer text keeps its first lines and its last line, because errors come last. If not even two lines fit, it keeps
    its first characters and a third as many of its last characters. A note between the two parts says how much was cut;
    the note counts towards the limit. If the limit is smaller than the note, only the note is left. `ending` always
    follows in full and does not count.
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
    """Return the first `first` lines, a note and the last line."""
    return "\n".join([*lines[:first], CUT_LINES.format(count=len(lines) - first - 1), lines[-1]])


def _without_characters(text: str, first: int) -> str:
    """Return the first `first` characters, a note and a third as many of the last characters."""
    last = first // 3
    note = CUT_CHARACTERS.format(count=len(text) - first - last)
    return text[:first] + note + text[len(text) - last :]


def _longest(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest count in 0 .. limit that fits, by bisection; 0 if none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


@dataclass(frozen=True)
class EpisodeEnd:
    """The end of an episode, and the world's verdict if the world was asked for one."""

    end_reason: str
    """One of `schemas.END_REASONS`."""
    evaluation: Evaluation | None = None
    counts: bool = False
    """Whether the verdict sets the rollout's return and success; otherwise they are 0 and False."""
    fault: str = ""
    """The error message of a world that broke. Not a column of rollouts: it may name processes and times."""

    @property
    def episode_return(self) -> float:
        """The rollout's return."""
        return self.evaluation.episode_return if self.evaluation is not None and self.counts else 0.0


EpisodeSteps = Generator[GenerationRequest, Generation, EpisodeEnd]
"""An episode in progress: yields a request for each turn that it needs, and is sent the sampled turn."""


@dataclass
class LiveRollout:
    """A rollout in progress. Only one thread at a time may use it."""

    planned: PlannedRollout
    episode: EpisodeSteps | None = None
    """The current attempt."""
    transcript: Transcript = field(default_factory=Transcript)
    retries: int = 0
    clock: list[float] = field(default_factory=list)
    """When the current attempt opened and when each of its turns was answered, in seconds since the epoch."""

    @property
    def name(self) -> str:
        return self.planned.name

    def seed(self, *names: str | int) -> int:
        """Return the seed of one of this rollout's random streams; it changes with every retry."""
        return derive_seed(self.planned.seed, self.retries, *names)

    @property
    def world_seed(self) -> int:
        """Seed of everything random in the world."""
        fixed = self.planned.world_seed
        return self.seed(WORLD_SEED) if fixed is None else fixed

    def begin_again(self) -> None:
        """Discard what was played, after a world fault."""
        self.retries += 1
        self.transcript = Transcript()
        self.clock = []

    def close(self) -> None:
        """Close the episode. No thread may be playing it."""
        if self.episode is not None:
            self.episode.close()

    def row(self, end: EpisodeEnd) -> dict[str, Any]:
        """Return the row of `schemas.PLAYED_ROLLOUTS`, without the columns that all rollouts share (policy, engine)."""
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
    """The conversation of one attempt at a rollout; it appends its turns to the rollout's transcript."""

    def __init__(
        self,
        rollout: LiveRollout,
        chat: ChatFormat,
        settings: PlaySettings,
        opening: list[Message],
        text_of: Callable[[Sequence[int]], str],
    ) -> None:
        """Begin with `opening`; `text_of` turns a turn's ids into the text that the world receives."""
        self._rollout, self._chat, self._settings, self._text_of = rollout, chat, settings, text_of
        self._messages = list(opening)
        self._prompt = chat.prompt_ids(opening)
        self._turn: tuple[int, ...] = ()

    def next_turn(self) -> GenerationRequest:
        """Return the request for the policy's next turn."""
        rollout, settings = self._rollout, self._settings
        temperature = rollout.planned.temperature or settings.temperature
        return GenerationRequest(
            rollout.name,
            self._prompt,
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
        """Append the part of a sampled turn that is kept (see `ChatFormat.kept_ids`).

        Returns the text for the world.
        """
        ids = self._chat.kept_ids(generation.token_ids)
        self._rollout.transcript.add_turn(self._prompt, ids, generation.logprobs[: len(ids)])
        self._turn = ids
        text = self._text_of(ids)
        self._messages.append({"role": "assistant", "content": text})
        return text

    def add_observation(self, observation: Observation) -> None:
        """Append the world's answer to the last turn, cut to the observation budget.

        The turn's thought stays visible only where the chat format keeps it (see `ChatFormat.seen_later`).
        """
        limit, closed = self._settings.limits.max_observation_tokens, self._chat.closes(self._turn)
        shown = shown_observation(self._chat, observation.text, observation.ending, closed=closed, max_tokens=limit)
        self._messages.append({"role": "user", "content": shown.text})
        self._prompt = [*self._chat.seen_later(self._prompt, self._turn), *shown.ids]


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
