"""A tokenizer's chat template, read by probing it with sentinels.

The conversation of an agent is a sequence of tokens that only grows: prompt, sampled turn, glue, sampled turn, glue.
Glue is the text that the template puts between the content of one turn and the end of the next generation prompt. This
holds for every template that only adds text for a new message. One deviation is accepted: a template that leaves the
thoughts out of earlier turns. By `policy.chat.earlier_thoughts` the sampled tokens stay as they are, or later turns do
not see the thoughts (`TurnFrame.earlier`). Every other deviation raises an error that names it.
"""

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.core.config.policy import ChatSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Said = Mapping[str, Any]
"""A message as templates take it; `reasoning_content` holds the thought of a turn that has one."""
THINK, END_OF_THOUGHT = "<think>", "</think>"
_SYSTEM, _THOUGHT, _USER, _TURN, NEXT, _NEXT_TURN, _LAST_USER = (f"sentinel-{letter}" for letter in "STABCDE")
_THOUGHTS = re.compile(r"reasoning_content|\[THINK\]|message\.(?:reasoning|thinking|thoughts?)\b")
"""Names in a template that is made for thoughts."""
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_DIRECTIVES = "-d", "-m", "-H", "-I", *"aAwdbBmyYHIMpSfjUWcxXGuV"
_SOME_DATES = datetime.date(2001, 2, 3), datetime.date(2014, 5, 6)


class ChatTemplateError(ValueError):
    """A chat template that cannot be used for an agent loop; the message gives the reason."""


class ChatTemplate:
    """The template of one tokenizer, with the settings of `policy.chat` applied. Raises ChatTemplateError."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", settings: ChatSettings) -> None:
        self.name = f"{type(tokenizer).__name__} {tokenizer.name_or_path}".rstrip()
        self._tokenizer, self._settings = tokenizer, settings
        if not tokenizer.chat_template:
            raise self.error("the tokenizer has no chat template; use an instruction-tuned model")
        self.source = str(tokenizer.get_chat_template())
        self._date = settings.date
        self._require_date()
        if settings.enable_thinking is not None and not self.switches(True, False):
            raise self.error("the chat template has no enable_thinking; set policy.chat.enable_thinking to null")

    def error(self, reason: str) -> ChatTemplateError:
        """Return an error that names this template."""
        return ChatTemplateError(f"{self.name}: {reason}")

    def text(self, messages: Sequence[Said], *, prompt: bool = True, tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return the template's text for `messages` and `tools`, by default with the generation prompt."""
        return self._render(messages, prompt, self._settings.enable_thinking, self._date, tools)

    def shows_tools(self) -> bool:
        """Return whether the template shows tools, calls of them and what they answered."""
        call = {"id": "a00000000", "type": "function", "function": {"name": _TURN, "arguments": {}}}
        answered = {**_said("tool", NEXT), "tool_call_id": call["id"], "name": _TURN}
        messages = [_said("user", _USER), {**_said("assistant", ""), "tool_calls": [call]}, answered]
        schema = {"name": _THOUGHT, "description": "", "parameters": {"type": "object", "properties": {}}}
        try:
            text = self.text(messages, tools=[{"type": "function", "function": schema}])
        except ChatTemplateError:
            return False
        return all(part in text for part in (_THOUGHT, _TURN, NEXT))

    def shows_system(self) -> bool:
        """Return whether the template has a place for a system message."""
        try:
            return _SYSTEM in self.text([_said("system", _SYSTEM), _said("user", _USER)])
        except ChatTemplateError:
            return False

    def _render(
        self,
        messages: Sequence[Said],
        prompt: bool,
        thinking: bool | None,
        date: datetime.date | None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        more: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
        more |= {"tools": [dict(tool) for tool in tools]} if tools else {}
        source = self.source if date is None else _clock(date) + self.source
        plain = [dict(message) for message in messages]
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    plain, chat_template=source, tokenize=False, add_generation_prompt=prompt, **more
                )
            )
        except Exception as error:  # a template may raise anything
            raise self.error(f"the chat template fails: {error}") from None

    def _require_date(self) -> None:
        """Raise ChatTemplateError where a run across midnight would change its prompts."""
        first, second = (self._sample(self._settings.enable_thinking, date) for date in _SOME_DATES)
        if self._date is None and first != second:
            raise self.error("the chat template shows today's date; set policy.chat.date, so that the prompt stays")

    def expects_thoughts(self) -> bool:
        """Return whether the template is made for thoughts, and its switch, if it has one, does not turn them off."""
        chosen = self._settings.enable_thinking
        off = chosen is False or (not self.switches(chosen, False) and self.switches(chosen, True))
        return _THOUGHTS.search(_COMMENT.sub("", self.source)) is not None and not off

    def switches(self, one: bool | None, other: bool | None) -> bool:
        """Return whether two values of `enable_thinking` lead to different texts."""
        return self._sample(one, _SOME_DATES[0]) != self._sample(other, _SOME_DATES[0])

    def _sample(self, thinking: bool | None, date: datetime.date) -> str:
        opening = [_said("system", _SYSTEM)] if self.shows_system() else []
        conversation = [*opening, _said("user", _USER), _said("assistant", _TURN), _said("user", _LAST_USER)]
        return self._render(conversation, True, thinking, date)


@dataclass(frozen=True)
class TurnFrame:
    """The template's own text around an assistant's turn."""

    prompt: str
    """Text after the user's message, generation prompt included."""
    lead: str
    """Text between the generation prompt and a written answer: a blank, or an empty thought or a thought's end."""
    ending: str
    """Text after the answer of a conversation's last turn; empty where the template adds nothing."""
    glue: str
    """Text from an answer to the end of the next generation prompt, around the observation NEXT."""
    thought_begins: str
    """Mark with which a turn begins a thought. Empty where the generation prompt has it, or there are no thoughts."""
    thought_ends: str
    """Text between a thought and its answer; empty where the template knows no thoughts."""
    prompt_opens_thought: bool
    drops_thoughts: bool
    """Whether the template leaves out the thoughts of earlier turns."""
    earlier: str
    """Text that stands between the user's message and the answer of an earlier turn that began with a thought."""
    trims: bool
    """Whether the template strips white space around an answer."""

    @property
    def kept_of_thought(self) -> str | None:
        """Return the end of `thought_ends` that earlier turns keep: gpt-oss names a channel, Nemotron has "</think>".

        None where an earlier turn is not a beginning of the generation prompt, such an end, and the answer.
        """
        for cut in range(len(self.earlier), -1, -1):
            if self.prompt.startswith(self.earlier[:cut]) and self.thought_ends.endswith(self.earlier[cut:]):
                return self.earlier[cut:]
        return None


def read_frame(template: ChatTemplate, settings: ChatSettings) -> TurnFrame:
    """Probe the template with a system message (where it shows one), three turns and thoughts.

    Raises ChatTemplateError naming what the template does to earlier messages.
    """
    opening = [_said("user", _USER)]
    if template.shows_system():
        opening.insert(0, _said("system", _SYSTEM))
    start, user_text, prompt = template.text(opening).partition(_USER)
    if not user_text:
        raise template.error("the chat template does not show a user's message that is plain text")
    probe = _Probe(template, opening, start + user_text, prompt)
    plain = probe.history(_plain)
    if not plain.exact:
        raise template.error(_NOT_ADDITIVE.format("a later turn rewrites earlier ones"))
    probe.require_same_opening(plain.opened)
    thinking = probe.thinking()
    thoughtful = probe.history(thinking)
    drops = _THOUGHT not in thoughtful.opened or not thoughtful.exact
    frame = probe.frame(plain.glue, thinking, thoughtful.opened, drops=drops)
    if drops and settings.earlier_thoughts == "as_template":
        probe.require_removal(frame, exact=thoughtful.exact)
    return frame


class _History(NamedTuple):
    """A template's text of a first turn after the conversation has continued."""

    opened: str
    """Text between the user's message and the answer."""
    glue: str
    exact: bool
    """Whether two more turns change nothing; otherwise they change thoughts only."""


@dataclass(frozen=True)
class _Probe:
    template: ChatTemplate
    opening: list[Said]
    start: str
    """The opening's text up to the end of the user's message."""
    prompt: str
    """The opening's text from there on, with the generation prompt."""

    def history(self, turn: Callable[[str], Said]) -> _History:
        """Render longer conversations. Raises ChatTemplateError where the template changes more than thoughts."""
        conversation = [*self.opening, turn(_TURN), _said("user", NEXT)]
        head, answer, glue = self.template.text(conversation).partition(_TURN)
        if not answer or not head.startswith(self.start) or NEXT not in glue or _SYSTEM in glue:
            raise self._not_additive(head, "an answer changes the text before it")
        opened = head[len(self.start) :]
        longer = self.template.text([*conversation, turn(_NEXT_TURN), _said("user", _LAST_USER)])
        between = glue.removesuffix(self.prompt) + opened
        expected = head + _TURN + between + _NEXT_TURN + glue.replace(NEXT, _LAST_USER)
        if _without_thoughts(longer) != _without_thoughts(expected):
            raise self._not_additive(longer.partition(_TURN)[0], "a later turn rewrites earlier ones")
        return _History(opened, glue, longer == expected)

    def require_same_opening(self, opened: str) -> None:
        """Raise ChatTemplateError where an earlier turn, thoughts aside, begins unlike the generation prompt."""
        prompt, earlier = _without_thoughts(self.prompt), _without_thoughts(opened)
        if not earlier.startswith(prompt):
            raise self.template.error(
                f"the chat template opens earlier turns with {opened!r}, but prompts for one with {self.prompt!r}"
            )

    def require_removal(self, frame: TurnFrame, *, exact: bool) -> None:
        """Raise ChatTemplateError where earlier turns are more than the sampled turns without their thoughts."""
        if exact and frame.kept_of_thought is not None:
            return
        raise self.template.error(
            "the chat template does more to earlier turns than to leave out their thoughts: it begins them with "
            f"{frame.earlier!r}, and prompts for one with {frame.prompt!r}; set policy.chat.earlier_thoughts to kept"
        )

    def thinking(self) -> Callable[[str], Said]:
        """Return the function that makes a turn with a thought from an answer, in the form that the template knows."""
        return _apart if _THOUGHT in self._last(_apart(_TURN)) else _within

    def frame(self, glue: str, thinking: Callable[[str], Said], earlier: str, *, drops: bool) -> TurnFrame:
        """Read the text around the last turn of a conversation, with a thought and without."""
        opened, _, ending = self._last(_plain(_TURN)).partition(_TURN)
        before, shown, after = self._last(thinking(_TURN)).partition(_THOUGHT)
        apart = thinking is _apart
        opens = self.prompt.rstrip().endswith(THINK) or (apart and before == self.prompt)
        begins = before.removeprefix(self.prompt).strip() if shown and before.startswith(self.prompt) else THINK
        ends = after.partition(_TURN)[0] if apart else f"\n{END_OF_THOUGHT}\n\n"
        known = apart or drops or not shown or END_OF_THOUGHT in self.template.source
        marked = not (apart or drops or opens) and END_OF_THOUGHT in opened.removeprefix(self.prompt)
        if marked or not (known or opens or not self.template.expects_thoughts()):
            raise self.template.error(
                "the chat template has marks of thoughts, but shows a turn's own thought as part of the answer; set "
                "policy.chat.enable_thinking to false where it has this switch"
            )
        return TurnFrame(
            prompt=self.prompt,
            lead=ends if opens else opened.removeprefix(self.prompt) if opened.startswith(self.prompt) else "",
            ending=ending,
            glue=glue,
            thought_begins=(begins or THINK) if known and not opens else "",
            thought_ends=ends if known or opens else "",
            prompt_opens_thought=opens,
            drops_thoughts=drops,
            earlier=earlier,
            trims=self._last(_plain(f" {_TURN} ")) == self._last(_plain(_TURN)),
        )

    def _last(self, turn: Said) -> str:
        """Render `turn` as the last turn of a conversation; return the text after the opening's."""
        text = self.template.text([*self.opening, turn], prompt=False)
        if not text.startswith(self.start):
            raise self._not_additive(text, "an answer changes the text before it")
        return text[len(self.start) :]

    def _not_additive(self, head: str, change: str) -> ChatTemplateError:
        if len(self.opening) > 1 and _SYSTEM not in head:
            change = "it moves the system message to a later message of the user"
        return self.template.error(_NOT_ADDITIVE.format(change))


_NOT_ADDITIVE = "the chat template is not additive: {}"


def _said(role: str, content: str) -> Said:
    return {"role": role, "content": content}


def _plain(answer: str) -> Said:
    return _said("assistant", answer)


def _apart(answer: str) -> Said:
    return {**_plain(answer), "reasoning_content": _THOUGHT}


def _within(answer: str) -> Said:
    return _plain(f"{THINK}\n{_THOUGHT}\n{END_OF_THOUGHT}\n\n{answer}")


def _without_thoughts(text: str) -> str:
    """Remove thoughts, their marks and all white space."""
    return re.sub(rf"\s+|{_THOUGHT}|{THINK}|{END_OF_THOUGHT}", "", text)


def _clock(date: datetime.date) -> str:
    """Return the head of a template in which `strftime_now` is noon of `date`, however the template calls it."""
    noon = datetime.datetime.combine(date, datetime.time(12))
    known = "".join(f"|replace('%{letter}', '{noon.strftime(f'%{letter}')}')" for letter in _DIRECTIVES)
    return f"{{%- macro strftime_now(format) -%}}{{{{ format{known} }}}}{{%- endmacro -%}}"
