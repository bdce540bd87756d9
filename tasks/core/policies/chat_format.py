"""Conversations as token ids, by the policy's own chat template.

Token in, token out: a sampled turn is never rendered or tokenised again. So the template is applied only to new
messages: `prompt_ids` applies it to the opening messages, and `continuation_ids` to each observation, where it returns
the text that the template puts between the content of one assistant turn and that of the next. `chat_template` decides
which templates allow this; the others are refused. Where a template has no place for a system message (Gemma's raises,
others drop it), its text begins the first message of the user, as Gemma's model card has it.

A turn may begin with a thought; the world acts on the answer after it. The thought stays in the conversation as
sampled, unless the template leaves earlier thoughts out and `policy.chat.earlier_thoughts` follows it (`seen_later`).

A turn is over at the template's end of turn, and also where a model ends it by other means: at an end-of-text id of its
generation config, or at a token with which the template opens the next turn. Facts: Qwen2.5's generation_config.json
names <|im_end|> and <|endoftext|>; apple/ml-loop (phi_agents/rl/llm/qwen_25.py) stops on these and on <|im_start|>,
keeps whichever was sampled in the conversation and trains on it. Here only the end of turn is kept (`kept_ids`).
gpt-oss ends a turn with <|return|>, for which its template has <|end|> in earlier turns: the sampled token is kept.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from tasks.core.config.policy import ChatSettings
from tasks.core.interfaces.world import Message
from tasks.core.policies.chat_template import NEXT, THINK, ChatTemplate, ChatTemplateError, read_frame

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["ChatFormat", "ChatTemplateError"]

_Role = Literal["system", "user", "assistant"]
_USER, _TURN = "sentinel-X", "sentinel-Y"
_BEFORE = "x"
"""Text put before a sampled turn to decode it: SentencePiece takes a blank off the first word."""
_REMEMBERED = 512
"""Size of the caches of openings and observations: rollouts of a task share openings, and many turns observations."""


class ChatFormat:
    """The conversations of one tokenizer. Thread-safe.

    Raises ChatTemplateError when the tokenizer has no chat template, when the template is not additive (it rewrites
    earlier turns, or needs to see what comes later), when it does not end assistant turns with a special token, or when
    it does not fit `settings`.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        end_ids: Sequence[int] = (),
        settings: ChatSettings = ChatSettings(),  # noqa: B008 - frozen
    ) -> None:
        """Probe the tokenizer's template.

        `end_ids`: end ids of the generation config (see `chat_settings.load_chat_format`).
        """
        self._tokenizer, self.settings = tokenizer, settings
        special = {id: str(token) for id, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._special_ids = frozenset(special)
        self._special = re.compile("|".join(map(re.escape, special.values())) or r"(?!)")
        self._template = ChatTemplate(tokenizer, settings)
        self.takes_system = self._template.shows_system()
        """Whether the template has a place for a system message."""
        self.frame = read_frame(self._template, settings)
        """The template's own text around a turn."""
        self._between, self._end_of_turn = self._find_ends()
        eos = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
        # Special tokens between the parts of a turn do not end it (gpt-oss has channels).
        parts = (self.frame.lead, self.frame.thought_begins, self.frame.thought_ends)
        within = {token for part in parts for token in self._encode(part)} & self._special_ids
        if self._end_of_turn in within:
            raise self._template.error(
                "the chat template ends turns with a special token that stands within turns, too"
            )
        ends = dict.fromkeys([self._end_of_turn, *eos, *end_ids, *self._find_openers()])
        self._stop_ids = tuple(end for end in ends if end not in within)
        before = self._encode(_BEFORE)
        exact = tokenizer.decode(before, clean_up_tokenization_spaces=False) == _BEFORE
        self._before = before if exact else []
        self._opens_thought = self._count_opening() if self.drops_thoughts else 0
        self._opening_ids = lru_cache(_REMEMBERED)(self._encode_opening)
        self._reply_ids = lru_cache(_REMEMBERED)(
            lambda observation: tuple(self._encode(self._continuation(observation)))
        )

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Return the ids at which sampling a turn ends.

        The template's end of turn comes first, then the ends of text of tokenizer and model, and the template's openers
        of turns.
        """
        return self._stop_ids

    @property
    def drops_thoughts(self) -> bool:
        """Return whether later turns do not see the thoughts of earlier ones."""
        return self.frame.drops_thoughts and self.settings.earlier_thoughts == "as_template"

    def seen_later(self, prompt: Sequence[int], turn: Sequence[int]) -> list[int]:
        """Return what later turns see of a prompt and the turn after it: all, or without the turn's thought.

        A dropped thought goes with the marks that the template leaves out with it, some of them the prompt's last ids.
        A turn whose thought has no end goes whole, except the mark that closes it. A token that ends a thought and
        begins an answer stays.
        """
        if not self.drops_thoughts:
            return [*prompt, *turn]
        whole = self._text(turn, special=True)
        begun, found = self._thoughts(whole)
        thought = len(turn) - self.closes(turn) if begun else 0 if found < 0 else self._end_of_thought(found, turn)
        return [*prompt[: len(prompt) - self._opens_thought], *turn[thought:]]

    def kept_ids(self, sampled: Sequence[int]) -> tuple[int, ...]:
        """Return the part of a turn that stays in the conversation: all except a last id that stops it by other means.

        So the conversation continues as the template has it: `continuation_ids` closes the turn, and each id that stays
        was sampled after those before it. An id that is the whole turn stays, to be learned from.
        """
        stray = len(sampled) > 1 and sampled[-1] in self._stop_ids[1:]
        return tuple(sampled[:-1] if stray else sampled)

    def closes(self, turn: Sequence[int]) -> bool:
        """Return whether a turn ended with the template's end of turn."""
        return len(turn) > 0 and turn[-1] == self._end_of_turn

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of the opening messages, which end with the generation prompt.

        The default system message of a template (Qwen2.5 has one) is added here, once, if `messages` brings none.
        """
        return list(self._opening_ids(tuple((message["role"], message["content"]) for message in messages)))

    def continuation_ids(self, observation: str, *, closed: bool) -> list[int]:
        """Return the ids between two sampled turns: end of turn, observation as user message, generation prompt.

        `closed`: the turn already ended with the end of turn (`closes`), which must not come twice.
        """
        ids = self._reply_ids(observation)
        return list(ids[ids.index(self._between) + 1 :] if closed else ids)

    def turn_ids(self, text: str) -> list[int]:
        """Return the ids of a written (not sampled) assistant turn with its end, for training on demonstrations.

        They are the template's own: `text` follows the generation prompt, and an empty thought where the template shows
        one. A text that begins with its own thought keeps it.
        """
        frame, written = self.frame, text.strip() if self.frame.trims else text
        if frame.thought_ends.strip() and frame.thought_ends.strip() in written:
            lead = ""
            written = written.removeprefix(THINK).removeprefix("\n") if frame.prompt_opens_thought else written
        else:
            lead = frame.lead
        tail = self._special.split(frame.ending, maxsplit=1)[0] if self._special.search(frame.ending) else ""
        return [*self._encode_after_prompt(lead + self._inert(written) + tail), self._end_of_turn]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of sampled ids, thoughts included, without special tokens."""
        return self._text(ids, special=False)

    def text_with_marks(self, ids: Sequence[int]) -> str:
        """Return the text of ids within a conversation, special tokens included."""
        return self._text(ids, special=True)

    def observation(self, ids: Sequence[int]) -> str:
        """Return the observation that `continuation_ids` put between two turns."""
        before, _, after = self.frame.glue.partition(NEXT)
        text = self.text_with_marks(ids).removesuffix(after)
        closed = self._special.split(before, maxsplit=1)[-1]  # where the turn before had sampled the end of turn
        return text.removeprefix(before) if text.startswith(before) else text.removeprefix(closed)

    def whole_turn(self, ids: Sequence[int]) -> str:
        """Return the text of a sampled turn with its thought, also where the generation prompt opens the thought."""
        return f"{THINK}{self.decode(ids)}" if self.frame.prompt_opens_thought else self.decode(ids)

    def answer(self, ids: Sequence[int]) -> str:
        """Return a sampled turn's text after its thoughts, on which the world acts; empty if the last has no end."""
        frame, whole = self.frame, self._text(ids, special=True)
        if not frame.thought_ends:
            return self.decode(ids).removeprefix(frame.lead)
        begun, found = self._thoughts(whole)
        if found < 0 and (lead := frame.lead.strip()) and lead in whole:
            return self._plain(whole.partition(lead)[2]).lstrip("\n")
        if begun or found < 0:
            return "" if begun else self._plain(whole)
        return self._plain(whole[found + len(frame.thought_ends.strip()) :]).lstrip("\n")

    def _thoughts(self, whole: str) -> tuple[bool, int]:
        """Return whether a turn ends within a thought, and where its last thought's end begins; -1 without an end.

        Thoughts stand before the answer. A mark within the code of an answer ends nothing.
        """
        frame, found, after = self.frame, -1, 0
        mark, begins = frame.thought_ends.strip(), frame.thought_begins or THINK
        begun = frame.prompt_opens_thought or whole.lstrip().startswith(begins)
        while (end := whole.find(mark, after)) >= 0 and (begun or (found < 0 and whole[:end].count("```") % 2 == 0)):
            found, after = end, end + len(mark)
            begun = whole[after:].lstrip().startswith(begins)
        return begun, found

    def _plain(self, answer: str) -> str:
        """Return an answer without special tokens, but for marks of thoughts, which its code may name."""
        marks = self.frame.thought_begins, self.frame.thought_ends.strip(), THINK
        return self._special.sub(lambda match: match[0] if match[0] in marks else "", answer)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return the template's text for `messages`, `tools` and the generation prompt.

        A space makes special tokens inert that are spelt out in a message, so that no observation can forge a turn.
        """
        messages = messages if self.takes_system else _without_system(messages)
        return self._template.text(self.inert(list(messages)), tools=self.inert(list(tools)))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text that `render` gave, or of a part of it that begins with a special token."""
        return self._encode(text)

    @cached_property
    def end_mark(self) -> str:
        """Return the text of the special token that the template puts after every earlier turn."""
        return str(self._tokenizer.convert_ids_to_tokens(self._between))

    @cached_property
    def shows_tools(self) -> bool:
        """Return whether the template has a form of its own for tools."""
        return self._template.shows_tools()

    def _encode_opening(self, messages: tuple[tuple[_Role, str], ...]) -> tuple[int, ...]:
        return tuple(self._encode(self.render([{"role": role, "content": content} for role, content in messages])))

    def _continuation(self, observation: str) -> str:
        said = (("user", _USER), ("assistant", _TURN), ("user", observation))
        return self.render([{"role": role, "content": content} for role, content in said]).partition(_TURN)[2]

    def inert(self, value: Any) -> Any:
        """Return a text, or JSON, whose special tokens are spelt with a space."""
        match value:
            case str():
                return self._inert(value)
            case Mapping():
                return {name: self.inert(part) for name, part in value.items()}
            case list() | tuple():
                return [self.inert(part) for part in value]
            case _:
                return value

    def _inert(self, text: str) -> str:
        return self._special.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _encode_after_prompt(self, text: str) -> list[int]:
        """Return the ids of `text` after a generation prompt.

        A SentencePiece tokenizer puts a blank before what it takes for the beginning of a text. Where text and prompt
        would share a token, which sampling cannot produce, something else stands before the text.
        """
        last = [match.start() for match in self._special.finditer(self.frame.glue)][-1]
        prompt, plain = self.frame.glue[last:], self._encode(text)
        encodings = []
        for before in (prompt, prompt + _BEFORE, _BEFORE):
            head, ids = self._encode(before), self._encode(before + text)
            if ids[: len(head)] == head:
                encodings.append(ids[len(head) :])
                if encodings[-1] == plain or self._text(encodings[-1], special=True) == text:
                    return encodings[-1]
        return [*encodings, plain][0]

    def _text(self, ids: Sequence[int], *, special: bool) -> str:
        """Return the text of ids within a conversation, where a first blank stays; with `special` tokens or without."""
        text = str(
            self._tokenizer.decode(
                [*self._before, *ids], skip_special_tokens=not special, clean_up_tokenization_spaces=False
            )
        )
        return text[len(_BEFORE) :] if self._before else text

    def _count_opening(self) -> int:
        """Return how many of a generation prompt's last ids earlier turns lack."""
        prompt = self._encode(self.frame.prompt)
        earlier = self._encode(self.frame.earlier.removesuffix(self.frame.kept_of_thought or ""))
        if prompt[: len(earlier)] != earlier:
            raise self._template.error(
                "a token of the generation prompt goes over the point up to which earlier turns have it; set "
                "policy.chat.earlier_thoughts to kept"
            )
        return len(prompt) - len(earlier)

    def _end_of_thought(self, found: int, turn: Sequence[int]) -> int:
        """Return how many ids go before what earlier turns keep; the end of the thought begins at character `found`."""
        mark, kept = self.frame.thought_ends.strip(), self.frame.kept_of_thought or ""
        if kept.strip():
            return self._ids_within(found + mark.index(kept.strip()), turn)
        end = self._ids_within(found + len(mark), turn)
        while not kept and end < len(turn) and not self._text(turn[end : end + 1], special=True).strip("\n"):
            end += 1
        return end

    def _ids_within(self, characters: int, ids: Sequence[int]) -> int:
        """Return how many ids lie within the first `characters` of their text."""
        shown = range(1, len(ids) + 1)
        return bisect_left(shown, True, key=lambda count: len(self._text(ids[:count], special=True)) > characters)

    def _find_ends(self) -> tuple[int, int]:
        """Return the token that ends earlier turns, and the token that ends a sampled turn."""
        if self._continuation(NEXT) != self.frame.glue:
            raise self._template.error("the chat template puts other text between turns after a system message")
        glue, _ = self._marks()
        if not glue:
            raise self._template.error("the chat template ends assistant turns with no special token")
        last = [token for token in self._encode(self.frame.ending) if token in self._special_ids]
        return glue[0], (last or glue)[0]

    def _find_openers(self) -> list[int]:
        """Return the special tokens that open a user's and an assistant's message: the first that ends no turn."""
        others = ([token for token in marks if token != self._end_of_turn] for marks in self._marks())
        return [marks[0] for marks in others if marks]

    def _marks(self) -> tuple[list[int], list[int]]:
        """Return the special tokens between turn and observation, and those between observation and next turn."""
        before, _, after = self.frame.glue.partition(NEXT)
        user, turn = ([token for token in self._encode(text) if token in self._special_ids] for text in (before, after))
        return user, turn


def _without_system(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Put a system message's text before that of the user's message after it."""
    if [message["role"] for message in messages[:2]] != ["system", "user"]:
        return messages
    system, user, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}, *rest]
