"""Conversations as token ids, by the policy's own chat template.

Token in, token out: a sampled turn is never rendered or tokenised again. So the template is applied only to messages
that are new: to the opening ones by `prompt_ids`, and to each observation by `continuation_ids`, which is the text that
the template puts between the content of one assistant turn and that of the next. This holds for every template that is
additive (a new message only adds text); the others are refused. Where a template has no place for a system message
(Gemma's raises, others drop it), its text begins the first message of the user, as Gemma's model card has it.

A turn is over at the template's end of turn, and also where a model ends it by other means: at an end-of-text id of its
generation config, or at a token with which the template opens the next turn. Facts: Qwen2.5's generation_config.json
names <|im_end|> and <|endoftext|>; apple/ml-loop (phi_agents/rl/llm/qwen_25.py) stops on these and on <|im_start|>,
keeps whichever was sampled in the conversation and trains on it. Here only the end of turn is kept (`kept_ids`).
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from tasks.core.interfaces.world import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_Role = Literal["system", "user", "assistant"]
_USER, _TURN, _NEXT_USER, _NEXT_TURN, _LAST_USER, _SYSTEM = (f"sentinel-{letter}" for letter in "ABCDEF")


class ChatTemplateError(ValueError):
    """The tokenizer's chat template cannot be used for an agent loop; the message says why."""


_REMEMBERED = 512
"""Openings and observations whose ids are kept: rollouts of a task share the one, and many turns answer the same."""


class ChatFormat:
    """Renders conversations for one tokenizer. Thread-safe.

    Raises ChatTemplateError when the tokenizer has no chat template, when the template is not additive (it rewrites
    earlier turns, or needs to see what comes later) or when it does not end assistant turns with a special token.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", end_ids: Sequence[int] = ()) -> None:
        """`end_ids`: the ids that the model's generation config ends on; see `loading.load_chat_format`."""
        self._tokenizer = tokenizer
        special = {id: str(token) for id, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._special_ids = frozenset(special)
        self._special = re.compile("|".join(map(re.escape, special.values())) or r"(?!)")
        self._takes_system = True
        _require_additive(self)
        self._takes_system = self._shows_system()
        self._end_of_turn = self._find_end_of_turn()
        eos = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
        self._stop_ids = tuple(dict.fromkeys([self._end_of_turn, *eos, *end_ids, *self._find_openers()]))
        self._opening_ids = lru_cache(_REMEMBERED)(self._encode_opening)
        self._reply_ids = lru_cache(_REMEMBERED)(self._encode_reply)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids at which sampling a turn ends: the template's end of turn first, then the tokenizer's and the model's
        ends of text, and what opens the next turn in the template."""
        return self._stop_ids

    def kept_ids(self, sampled: Sequence[int]) -> tuple[int, ...]:
        """The part of a turn that stays in the conversation: all, but for a last id that stops it by other means.

        So the conversation goes on as the template has it, with the turn closed by `continuation_ids`; each id that
        stays was sampled after those before it. An id that is the whole turn stays, to be learned from.
        """
        stray = len(sampled) > 1 and sampled[-1] in self._stop_ids[1:]
        return tuple(sampled[:-1] if stray else sampled)

    def closes(self, turn: Sequence[int]) -> bool:
        """Whether a turn ended with the template's end of turn."""
        return len(turn) > 0 and turn[-1] == self._end_of_turn

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """The ids of the opening messages, ending with the generation prompt.

        A template's default system message (Qwen2.5 has one) is added here, once, if `messages` brings none.
        """
        return list(self._opening_ids(tuple((message["role"], message["content"]) for message in messages)))

    def continuation_ids(self, observation: str, *, closed: bool) -> list[int]:
        """The ids between a sampled turn and the next one: end of turn, observation as user message, generation prompt.

        `closed` says that the turn ended with the end of turn (`closes`), which must not come twice.
        """
        ids = self._reply_ids(observation)
        return list(ids[ids.index(self._end_of_turn) + 1 :] if closed else ids)

    def turn_ids(self, text: str) -> list[int]:
        """The ids of a written (not sampled) assistant turn with its end: what a demonstration trains on."""
        return [*self._encode(self._inert(text)), self._end_of_turn]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def render(self, messages: Sequence[Message]) -> str:
        """The template's text for `messages` and the generation prompt.

        Special tokens spelt out in a message are made inert by a space, so that no observation can forge a turn.
        """
        messages = messages if self._takes_system else _without_system(messages)
        safe = [{"role": message["role"], "content": self._inert(message["content"])} for message in messages]
        return str(self._tokenizer.apply_chat_template(safe, tokenize=False, add_generation_prompt=True))

    def _encode_opening(self, messages: tuple[tuple[_Role, str], ...]) -> tuple[int, ...]:
        return tuple(self._encode(self.render([{"role": role, "content": content} for role, content in messages])))

    def _encode_reply(self, observation: str) -> tuple[int, ...]:
        return tuple(self._encode(self._continuation(observation)))

    def _continuation(self, observation: str) -> str:
        return self.render(_conversation(_USER, _TURN, observation)).partition(_TURN)[2]

    def _inert(self, text: str) -> str:
        return self._special.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _shows_system(self) -> bool:
        try:
            return _SYSTEM in self.render([{"role": "system", "content": _SYSTEM}, *_conversation(_USER)])
        except Exception:  # a template raises what it likes
            return False

    def _find_end_of_turn(self) -> int:
        marks, _ = self._marks()
        if marks:
            return marks[0]
        raise ChatTemplateError(
            f"{self._tokenizer.name_or_path}: the chat template ends assistant turns with no special token"
        )

    def _find_openers(self) -> list[int]:
        """The special tokens that open a user's and an assistant's message; of each the first that ends no turn."""
        others = ([token for token in marks if token != self._end_of_turn] for marks in self._marks())
        return [marks[0] for marks in others if marks]

    def _marks(self) -> tuple[list[int], list[int]]:
        """The special tokens between a turn and the observation, and between the observation and the next turn."""
        before, _, after = self._continuation(_NEXT_USER).partition(_NEXT_USER)
        user, turn = ([token for token in self._encode(text) if token in self._special_ids] for text in (before, after))
        return user, turn


def _conversation(*contents: str) -> list[Message]:
    """User and assistant messages in turn, the user first."""
    return [
        {"role": "assistant", "content": content} if index % 2 else {"role": "user", "content": content}
        for index, content in enumerate(contents)
    ]


def _without_system(messages: Sequence[Message]) -> Sequence[Message]:
    """A system message's text before that of the user's message after it."""
    if messages[0]["role"] != "system":
        return messages
    system, user, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}, *rest]


def _require_additive(chat: ChatFormat) -> None:
    """Two turns more must leave the text so far as it was, and be separated like the turns before."""
    name = chat._tokenizer.name_or_path
    if not chat._tokenizer.chat_template:
        raise ChatTemplateError(f"{name}: the tokenizer has no chat template; use an instruction-tuned model")
    opening = chat.render(_conversation(_USER))
    one = chat.render(_conversation(_USER, _TURN, _NEXT_USER))
    two = chat.render(_conversation(_USER, _TURN, _NEXT_USER, _NEXT_TURN, _LAST_USER))
    between = one.removeprefix(opening + _TURN)
    if between == one or _NEXT_USER not in between:
        raise ChatTemplateError(f"{name}: the chat template is not additive: an answer changes the text before it")
    if two != one + _NEXT_TURN + between.replace(_NEXT_USER, _LAST_USER):
        raise ChatTemplateError(f"{name}: the chat template is not additive: a later turn rewrites earlier ones")
