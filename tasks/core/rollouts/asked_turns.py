"""The turns that a program asks for: their prompts, token in, token out, and the sequences that they are trained as.

A request continues the ids of an earlier turn wherever it can. Its messages name that turn where they hold the very
answer that was given after the very messages before; else where that turn's text, with all before it, begins the text
of the request. Turns thus form a tree. Its branches are the rollout's sequences, in an order that follows from their
ids, never from the order in which requests came. A request's seed follows from its content and its number among equals.
"""

import hashlib
import json
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tasks.core.interfaces.asking import Ask, ChatMessage, Refusal, Said
from tasks.core.interfaces.engine import Generation, GenerationRequest, SamplingSettings
from tasks.core.interfaces.world import Observation
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.chat_template import ChatTemplateError
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.rollouts.transcript import Transcript
from tasks.core.tool_calls import checked, plain_messages, readable_answer

LIMITS = {"turn_limit": "turn_limit", "context_length_exceeded": "context_limit"}
"""The end of an episode that a refusal's code may be."""
_TURN = "sentinel-of-a-turn"


class Refused(Exception):  # noqa: N818
    """A request that the model's chat template cannot show."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass
class Turn:
    """A sampled turn, and those that continue it."""

    prompt_ids: list[int]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    """The text of the conversation up to here, with the mark that ends the turn where it was sampled."""
    closed: bool
    spoken: str
    """The turn as the template is given it, thought included."""
    reply: Observation
    after: list["Turn"] = field(default_factory=list)


class Prompt(NamedTuple):
    """A prompt as ids and as text, and the turn that it continues."""

    ids: list[int]
    text: str
    before: Turn | None


class AskedTurns:
    """The turns of one attempt at a rollout. Requests are taken one after the other."""

    def __init__(self, planned: PlannedRollout, chat: ChatFormat, settings: PlaySettings) -> None:
        self._planned, self._chat, self._settings = planned, chat, settings
        self._turns: list[Turn] = []
        self._roots: list[Turn] = []
        self._answered: dict[str, Turn] = {}
        """By the digest of the messages up to the answer, answer included."""
        self._equal: Counter[str] = Counter()
        self._prompt, self._seed = Prompt([], "", None), 0
        """Those of the request that is taken now."""
        self.transcript = Transcript()
        """The turns in the order of their ids, branch after branch."""

    def __len__(self) -> int:
        return len(self._turns)

    def refusal(self, ask: Ask) -> Refusal | None:
        """Take a request: make its prompt. Return why it can have no answer; None: it can."""
        if len(self._turns) == self._settings.limits.max_turns:
            return Refusal(f"the {len(self._turns)} turns of the episode are used up", code="turn_limit")
        try:
            self._prompt = self._prompt_of(ask)
        except Refused as refused:
            return refused.refusal
        return None

    def too_long(self, ask: Ask) -> Refusal:
        """Return the refusal of the request whose prompt fills the context."""
        problem = f"the context window is full: the {len(ask.messages)} messages are {len(self._prompt.ids)} tokens"
        return Refusal(problem, "messages", "context_length_exceeded")

    def request(self, ask: Ask, name: str, seed: Callable[..., int]) -> GenerationRequest:
        """Return what the engine is asked; `seed` is that of the rollout's streams."""
        content = digest(ask.messages, ask.tools, ask.stop, ask.max_tokens)
        self._equal[content] += 1
        self._seed = seed("turn", content, self._equal[content])
        settings = self._settings
        sampling = SamplingSettings(
            self._planned.temperature or settings.temperature,
            min(settings.limits.max_tokens_per_turn, ask.max_tokens or sys.maxsize),
            self._chat.stop_ids,
            top_k=settings.top_k,
            top_p=settings.top_p,
        )
        plain = tuple(plain_messages(ask.messages, ask.tools))
        return GenerationRequest(name, self._prompt.ids, sampling, self._seed, self._planned.task.task_id, plain)

    def add(self, ask: Ask, generation: Generation) -> Said:
        """Keep a sampled turn, and return what the program is told of it."""
        chat, prompt = self._chat, self._prompt
        ids = chat.kept_ids(generation.token_ids)
        cut = _length_to_stop(chat, ids, ask.stop)
        ids = ids[:cut]
        text, closed = chat.answer(ids), chat.closes(ids)
        told = text if cut is None else text[: min(at for mark in ask.stop if (at := text.find(mark)) >= 0)]
        whole = chat.whole_turn(ids)
        message, readable = readable_answer(told, whole.removesuffix(text), ask.tools, self._seed)
        names = tuple(f"program.{call['function']['name']}" for call in message.get("tool_calls", ()))
        shown = chat.text_with_marks(ids[:-1]) + chat.end_mark if closed else chat.text_with_marks(ids)
        reply = Observation("", done=False, failed=not readable, api_calls=names, code_blocks=max(1, len(names)))
        turn = Turn(prompt.ids, ids, generation.logprobs[: len(ids)], prompt.text + shown, closed, whole, reply)
        self._keep(turn)
        if cut is None:
            self._answered.setdefault(digest([*ask.messages, message]), turn)
        finish = "stop" if generation.stop_reason == "stop" or cut is not None else "length"
        return Said(message, "tool_calls" if names else finish, len(prompt.ids), len(ids))

    def _keep(self, turn: Turn) -> None:
        self._turns.append(turn)
        before = self._prompt.before
        (self._roots if before is None else before.after).append(turn)
        order = list(self._in_order())
        if order[-1] is not turn:
            self.transcript = Transcript()
        for added in order if order[-1] is not turn else [turn]:
            self.transcript.add_turn(added.prompt_ids, added.ids, added.logprobs)
            self.transcript.add_reply(added.reply)

    def _prompt_of(self, ask: Ask) -> Prompt:
        known = {
            index: turn
            for index, message in enumerate(ask.messages)
            if message["role"] == "assistant" and (turn := self._answered.get(digest(ask.messages[: index + 1])))
        }
        if known and not self._chat.drops_thoughts:
            last = max(known)
            glue = self._glue(ask, last, closed=known[last].closed)
            if glue is not None:
                return self._continued(known[last], glue)
        text = self._text(ask, known)
        turns = [turn for turn in self._turns if text.startswith(turn.text)]
        if not turns:
            return Prompt(self._chat.encode(text), text, None)
        longest = max(turns, key=lambda turn: len(turn.text))
        return self._continued(longest, text[len(longest.text) :])

    def _in_order(self) -> Iterator[Turn]:
        waiting = _latest_first(self._roots)
        while waiting:
            turn = waiting.pop()
            yield turn
            waiting += _latest_first(turn.after)

    def _continued(self, turn: Turn, rest: str) -> Prompt:
        return Prompt([*turn.prompt_ids, *turn.ids, *self._chat.encode(rest)], turn.text + rest, turn)

    def _glue(self, ask: Ask, last: int, *, closed: bool) -> str | None:
        """Return the template's text after the answer at `last`; None where it shows none in its place."""
        said = [*ask.messages[:last], {"role": "assistant", "content": _TURN}, *ask.messages[last + 1 :]]
        try:
            before, found, after = self._rendered(said, ask).rpartition(_TURN)
        except ChatTemplateError:
            return None
        if not found or _TURN in before:
            return None
        self._check_shown(ask, last + 1, after)
        return after.partition(self._chat.end_mark)[2] if closed else after

    def _text(self, ask: Ask, known: dict[int, Turn]) -> str:
        """Return the template's text; answers that were given are shown as they were sampled, where it takes them."""
        sampled = [
            {"role": "assistant", "content": known[index].spoken} if index in known else message
            for index, message in enumerate(ask.messages)
        ]
        for messages in (sampled, ask.messages):
            try:
                text = self._rendered(messages, ask)
            except ChatTemplateError as error:
                refusal = Refusal(f"the policy's chat template cannot show them: {error}", "messages")
            else:
                self._check_shown(ask, 0, text)
                return text
        raise Refused(refusal)

    def _rendered(self, messages: Sequence[ChatMessage], ask: Ask) -> str:
        if self._chat.shows_tools:
            return self._chat.render(messages, ask.tools)
        return self._chat.render(plain_messages(messages, ask.tools))

    def _check_shown(self, ask: Ask, first: int, text: str) -> None:
        """Raise Refused for a message that the template leaves out."""
        for index, message in enumerate(ask.messages[first:], start=first):
            shown = self._chat.inert(message["content"]).strip()
            escaped = json.dumps(shown, ensure_ascii=False)[1:-1]
            if message["role"] != "assistant" and shown not in text and escaped not in text:
                problem = f"the policy's chat template does not show a message of {message['role']} in this place"
                raise Refused(Refusal(problem, f"messages.{index}"))


def digest(messages: Sequence[ChatMessage], *others: object) -> str:
    """Return the digest of messages and what else makes a request; thoughts aside, which need not be sent back."""
    said = [{**checked(message), "reasoning_content": None} for message in messages]
    return hashlib.sha256(json.dumps([said, *others], sort_keys=True).encode()).hexdigest()


def _latest_first(turns: Sequence[Turn]) -> list[Turn]:
    return sorted(turns, key=lambda turn: (len(turn.prompt_ids), turn.prompt_ids, turn.ids))[::-1]


def _length_to_stop(chat: ChatFormat, ids: Sequence[int], stop: Sequence[str]) -> int | None:
    """Return how many ids a turn has when a text of `stop` first stands in its answer; None if none does."""

    def stands(count: int) -> bool:
        answer = chat.answer(ids[:count])
        return any(mark in answer for mark in stop)

    if not stop or not stands(len(ids)):
        return None
    return 1 + bisect_left(range(1, len(ids)), True, key=stands)
