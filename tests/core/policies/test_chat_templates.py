"""Conversations by the chat templates of today's models, compared with texts written by hand."""

import datetime
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tasks.core.config.policy import ChatSettings
from tasks.core.interfaces.world import Message
from tasks.core.policies.chat_format import ChatFormat, ChatTemplateError
from tasks.core.policies.chat_settings import CHAT_SETTINGS, read_chat_settings, write_chat_settings
from tasks.core.policies.checkpoint_files import DIGESTS, write_digests
from tasks.core.policies.supervised import encode_example
from tasks.core.records.files import ArtifactError
from tasks.core.text_games.episode import read_answer
from tasks.core.worlds.appworld.kind import AppWorldConfig

TEMPLATES = Path(__file__).parent / "chat_templates"
OPENING: list[Message] = [{"role": "system", "content": "Act."}, {"role": "user", "content": "Pay."}]
DATED = ChatSettings(date=datetime.date(2023, 5, 18))


@dataclass(frozen=True)
class Family:
    """A model's template, and its conversation of two turns `T` -> `A` with the observation `O` between them."""

    file: str
    special: tuple[str, ...]
    stops: tuple[str, ...]
    """Stop tokens; the first ends a sampled turn."""
    opening: str
    """Prompt of system message and user's message."""
    turn: str
    """Text that a model samples, without its end."""
    glue: str
    """Text after a sampled turn (whose end it includes) up to the end of the next generation prompt."""
    written: str
    """The turn `A` without a thought, as in a demonstration."""
    settings: ChatSettings = field(default_factory=ChatSettings)


CHATML, DEEPSEEK = (
    ("<|im_start|>", "<|im_end|>"),
    ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<\uff5cend▁of▁sentence\uff5c>"),
)
HARMONY = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>")
GLM = ("<|user|>", "<|assistant|>", "<|system|>", "<|observation|>", "[gMASK]", "<sop>")
QWEN_OPENING = "<|im_start|>system\nAct.<|im_end|>\n<|im_start|>user\nPay.<|im_end|>\n<|im_start|>assistant\n"
QWEN_GLUE = "\n<|im_start|>user\nO<|im_end|>\n<|im_start|>assistant\n"
NO_THOUGHT = "<think>\n\n</think>\n\n"
GPT_OSS_SYSTEM = (
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n"
    "Current date: 2023-05-18\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be "
    "included for every message.<|end|><|start|>developer<|message|># Instructions\n\nAct.\n\n<|end|>"
)
FAMILIES = {
    "qwen3": Family(
        "qwen3",
        CHATML,
        ("<|im_end|>", "<|im_start|>"),
        QWEN_OPENING,
        "<think>\nT\n</think>\n\nA",
        QWEN_GLUE,
        f"{NO_THOUGHT}A",
    ),
    "qwen3, no thinking": Family(
        "qwen3",
        CHATML,
        ("<|im_end|>", "<|im_start|>"),
        QWEN_OPENING + NO_THOUGHT,
        "A",
        QWEN_GLUE + NO_THOUGHT,
        "A",
        ChatSettings(enable_thinking=False),
    ),
    "qwen3.6": Family(
        "qwen3_6",
        CHATML,
        ("<|im_end|>", "<|im_start|>"),
        QWEN_OPENING + "<think>\n",
        "T\n</think>\n\nA",
        QWEN_GLUE + "<think>\n",
        "\n</think>\n\nA",
    ),
    "qwen3.6, no thinking": Family(
        "qwen3_6",
        CHATML,
        ("<|im_end|>", "<|im_start|>"),
        QWEN_OPENING + NO_THOUGHT,
        "A",
        QWEN_GLUE + NO_THOUGHT,
        "A",
        ChatSettings(enable_thinking=False),
    ),
    "glm4moe": Family(
        "glm4moe",
        GLM,
        ("<|user|>", "<|assistant|>"),
        "[gMASK]<sop><|system|>\nAct.<|user|>\nPay.<|assistant|>",
        "\n<think>T</think>\nA",
        "\nO<|assistant|>",
        "\n<think></think>\nA",
    ),
    "gpt-oss": Family(
        "gptoss",
        HARMONY,
        ("<|return|>",),
        f"{GPT_OSS_SYSTEM}<|start|>user<|message|>Pay.<|end|><|start|>assistant",
        "<|channel|>analysis<|message|>T<|end|><|start|>assistant<|channel|>final<|message|>A",
        "<|start|>user<|message|>O<|end|><|start|>assistant",
        "<|channel|>final<|message|>A",
        DATED,
    ),
    "deepseek": Family(
        "deepseekv3",
        DEEPSEEK,
        ("<\uff5cend▁of▁sentence\uff5c>", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"),
        "Act.<\uff5cUser\uff5c>Pay.<\uff5cAssistant\uff5c><think>\n",
        "T\n</think>\n\nA",
        "<\uff5cUser\uff5c>O<\uff5cAssistant\uff5c><think>\n",
        "\n</think>\n\nA",
    ),
    "nemotron 3": Family(
        "nemotron_3_nano",
        CHATML,
        ("<|im_end|>", "<|im_start|>"),
        QWEN_OPENING + "<think>\n",
        "T\n</think>\nA",
        QWEN_GLUE + "<think>\n",
        "\n</think>\nA",
    ),
}


def byte_tokenizer(template: str, special: tuple[str, ...], end: str | None = None) -> PreTrainedTokenizerFast:
    letters = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=end, additional_special_tokens=list(special), chat_template=template
    )


def tokenizer_of(family: Family) -> PreTrainedTokenizerFast:
    template = (TEMPLATES / f"{family.file}.jinja").read_text(encoding="utf-8")
    return byte_tokenizer(template, family.special, family.stops[0])


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


@pytest.fixture
def chat(family: Family) -> ChatFormat:
    return ChatFormat(tokenizer_of(family), settings=family.settings)


def test_a_conversation_keeps_what_was_sampled_and_adds_the_templates_own_text(
    family: Family, chat: ChatFormat
) -> None:
    text = lambda ids: chat._tokenizer.decode(ids, clean_up_tokenization_spaces=False)  # noqa: E731
    end = family.stops[0]
    assert text(chat.prompt_ids(OPENING)) == family.opening
    turn = chat.kept_ids(chat._encode(family.turn + end))
    assert text(turn) == family.turn + end and chat.closes(turn)
    assert text(chat.continuation_ids("O", closed=True)) == family.glue
    assert text(chat.continuation_ids("O", closed=False)).endswith(family.glue)
    assert chat.stop_ids == tuple(chat._tokenizer.convert_tokens_to_ids(list(family.stops)))


def test_the_world_acts_on_the_answer(family: Family, chat: ChatFormat) -> None:
    code, thought = "```python\nprint(1)\n```\n", "```python\nwrong()\n```"
    for ending in (family.stops[0], ""):
        sampled = family.turn.replace("T", thought).replace("A", code) + ending
        assert chat.answer(chat._encode(sampled)) == code
    assert chat.answer(chat.turn_ids(code)) == (code.strip() if chat.frame.trims else code)
    if family.turn != "A":
        assert chat.answer(chat._encode(family.turn.partition("T")[0] + thought)) == ""


@pytest.mark.parametrize("name", ["qwen3", "qwen3.6", "deepseek", "glm4moe"])
def test_a_world_that_reads_thoughts_gets_them_however_they_begin(name: str) -> None:
    chat = ChatFormat(tokenizer_of(FAMILIES[name]))
    written = "<think>go left</think><answer>Left</answer>"
    assert chat.whole_turn(chat.turn_ids(written)) == written
    sampled = chat._encode(FAMILIES[name].turn.replace("T", "go left").replace("A", "<answer>Left</answer>"))
    assert read_answer(chat.whole_turn(sampled), thinking=True, max_actions=1).actions == ("Left",)


def test_a_written_turn_is_the_templates_own(family: Family, chat: ChatFormat) -> None:
    written = chat._tokenizer.decode(chat.turn_ids("A"), clean_up_tokenization_spaces=False)
    assert written == family.written + family.stops[0]
    example = encode_example(chat, OPENING, [("A", "O"), ("A", "")])
    turn = family.written + family.stops[0]
    assert example.token_ids == tuple(chat._encode(family.opening + turn + family.glue + turn))


def as_template(family: Family) -> ChatFormat:
    settings = family.settings.model_copy(update={"earlier_thoughts": "as_template"})
    return ChatFormat(tokenizer_of(family), settings=settings)


DROPPING = [name for name in FAMILIES if name != "glm4moe"]


@pytest.mark.parametrize("name", DROPPING)
def test_turns_see_the_prompt_that_the_template_makes_of_the_conversation(name: str) -> None:
    family = FAMILIES[name]
    chat = as_template(family)
    said: list[dict[str, str]] = [dict(message) for message in OPENING]
    prompt = chat.prompt_ids(OPENING)
    for number in range(3):
        sampled = family.turn.replace("T", f"T{number}").replace("A", f"A{number}") + family.stops[0]
        turn = chat.kept_ids(chat._encode(sampled))
        prompt = [*chat.seen_later(prompt, turn), *chat.continuation_ids(f"O{number}", closed=True)]
        thought = {"reasoning_content": f"T{number}"} if name != "deepseek" else {}
        before = f"<think>\nT{number}\n</think>\n\n" if name == "deepseek" else ""
        said += [{"role": "assistant", "content": f"{before}A{number}"} | thought]
        said += [{"role": "user", "content": f"O{number}"}]
    shown = chat.text_with_marks(prompt)
    assert shown.replace("<|return|>", "<|end|>") == chat._template.text(said)
    assert all(f"A{number}" in shown and f"T{number}" not in shown for number in range(3))


@pytest.mark.parametrize("name", DROPPING)
def test_a_thought_without_an_end_is_dropped_with_its_whole_turn(name: str) -> None:
    chat = as_template(FAMILIES[name])
    if FAMILIES[name].turn == "A":
        return
    begun = FAMILIES[name].turn.partition("T")[0] + "and so on"
    prompt = chat.prompt_ids(OPENING)
    for ending in ("", FAMILIES[name].stops[0]):
        seen = chat.seen_later(prompt, chat._encode(begun + ending))
        assert seen == prompt[: len(prompt) - chat._opens_thought] + chat._encode(ending)


def test_a_token_that_ends_a_thought_and_begins_the_answer_stays() -> None:
    chat = as_template(FAMILIES["qwen3"])
    for text in ("<think>\nT</think>A<|im_end|>", "A<|im_end|>"):
        assert chat.text_with_marks(chat.seen_later([], chat._encode(text))) == "A<|im_end|>"


def test_a_template_that_puts_something_in_the_place_of_thoughts_is_refused() -> None:
    with pytest.raises(ChatTemplateError, match=r"does more to earlier turns than to leave out their.*'<\|assistant"):
        as_template(FAMILIES["glm4moe"])


LAST_USER = """{%- for m in messages %}{%- if m.role == 'user' %}<|im_start|>user
{% if loop.last and messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}
{{- m.content }}<|im_end|>
{%- elif m.role == 'assistant' %}<|im_start|>assistant
{{ m.content }}<|im_end|>{%- endif %}{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A template like Mistral's later ones: the system message is in the last message of the user."""
BLANK = """{%- for m in messages %}{%- if m.role == 'user' %}<|im_start|>{{ m.content }}<|im_start|>
{%- else %} {{ m.content }} <|im_end|>{%- endif %}{%- endfor %}"""
"""A template like Llama 2's: a blank on both sides of an answer."""
NUMBERED = """{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant, think
{% endif %}"""
TODAY = "<|im_start|>{{ strftime_now('%d %b %Y') }}<|im_end|>"
PLAIN = """{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def thoughtful(shown: str) -> str:
    """Return a template of ChatML in which `shown` is the text of an assistant's message."""
    return PLAIN.replace("{{ m.content }}", "{{ (" + shown + ") if m.role == 'assistant' else m.content }}")


WITHOUT = "m.content.split('</think>')[-1].lstrip()"
"""What DeepSeek-R1, R1-0528, V3.1 and Nemotron Super 1.5 show of every turn, the last one included."""
EMPTY_THOUGHT = thoughtful("'<think></think>' ~ m.content")
"""As Kimi-K2-Thinking: an empty thought before the content, in which the turn's own stays."""
KINDS = {
    "leaves all thoughts out": thoughtful(WITHOUT),
    "leaves all but the last out": thoughtful(f"m.content if loop.last else {WITHOUT}"),  # QwQ, LFM2.5
    "leaves thoughts in": PLAIN + "{# <think> and </think> #}",  # SmolLM3
    "opens the thought": thoughtful(WITHOUT).replace("assistant\n{% endif", "assistant\n<think>\n{% endif"),
}
WRONG = "```python\nwrong()\n```"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("special", [CHATML, (*CHATML, "<think>", "</think>")])
def test_only_the_answers_code_counts_and_a_turn_ends(kind: str, special: tuple[str, ...]) -> None:
    chat = ChatFormat(byte_tokenizer(KINDS[kind], special, "<|im_end|>"))
    assert chat._tokenizer.convert_ids_to_tokens(list(chat.stop_ids)) == ["<|im_end|>", "<|im_start|>"]
    begins = "" if chat.frame.prompt_opens_thought else "<think>\n"
    for turn, answer in {
        f"{begins}T {WRONG}\n</think>\n\nA": "A",
        f"{begins}T {WRONG}": "",
        f"{begins}a\n</think>\n\n<think>\nb {WRONG}\n</think>\n\nA": "A",
        f"{begins}a\n</think>\n\n<think>\nb {WRONG}": "",
        f"{begins}T\n</think>\n\n```python\nx = 1 # </think>\n```": "```python\nx = 1 # </think>\n```",
        **({} if not begins else {"A": "A", "```python\nx = '</think>'\n```": "```python\nx = '</think>'\n```"}),
    }.items():
        assert chat.answer(chat._encode(turn + "<|im_end|>")) == answer


@pytest.mark.parametrize(
    ("template", "settings", "reason"),
    [
        (LAST_USER, ChatSettings(), "moves the system message to a later message of the user"),
        (NUMBERED, ChatSettings(), "opens earlier turns with .* but prompts for one with"),
        (TODAY + PLAIN, ChatSettings(), r"shows today's date; set policy\.chat\.date"),
        ("{% set now = strftime_now %}{{ now ('%Y') }}" + PLAIN, ChatSettings(), r"shows today's date; set policy"),
        (EMPTY_THOUGHT, ChatSettings(), "marks of thoughts, but shows a turn's own thought as part of"),
        (
            "{% set of = 'reasoning_content' %}" + PLAIN,
            ChatSettings(),
            "marks of thoughts, but shows a turn's own thought as part",
        ),
        (PLAIN, ChatSettings(enable_thinking=False), r"no enable_thinking; set policy\.chat\.enable_thinking to null"),
        ("{{ raise_exception('no') }}" + PLAIN, ChatSettings(), "the chat template fails: no"),
    ],
)
def test_each_deviation_is_refused_by_its_name(template: str, settings: ChatSettings, reason: str) -> None:
    with pytest.raises(ChatTemplateError, match=reason):
        ChatFormat(byte_tokenizer(template, CHATML), settings=settings)


def test_a_blank_around_answers_belongs_to_the_template_not_the_code() -> None:
    chat = ChatFormat(byte_tokenizer(BLANK, CHATML))
    assert chat._tokenizer.decode(chat.turn_ids("x = 1")) == " x = 1 <|im_end|>"
    assert chat.answer(chat._encode(" x = 1")) == "x = 1" and chat.answer(chat._encode("  x")) == " x"


@pytest.mark.parametrize(
    "call",
    [
        "strftime_now('%d %b %Y')",
        'strftime_now ( "%d %b %Y" )',
        "strftime_now('%-d ' ~ '%b %Y')",
        "now('%d %b %Y')",
        "shown('%d %b %Y')",
    ],
)
def test_a_shown_date_is_pinned(call: str) -> None:
    opening = [OPENING[1]]
    before = "{% set now = strftime_now %}{% macro shown(how) %}{{ strftime_now(how) }}{% endmacro %}"
    template = f"{before}<|im_start|>{{{{ {call} }}}}<|im_end|>" + PLAIN
    assert "18 May 2023" in ChatFormat(byte_tokenizer(template, CHATML), settings=DATED).render(opening)
    unreached = "{% if tools %}" + TODAY + "{% endif %}" + PLAIN
    assert ChatFormat(byte_tokenizer(unreached, CHATML)).render(opening)


def test_the_settings_lie_in_the_folder_of_the_base_policy(tmp_path: Path) -> None:
    byte_tokenizer(TODAY + PLAIN, CHATML).save_pretrained(tmp_path)
    write_digests(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    write_chat_settings(tmp_path, ChatSettings(), None)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    write_chat_settings(tmp_path, ChatSettings(), AppWorldConfig.standing_date)
    assert read_chat_settings(tmp_path) == DATED
    assert CHAT_SETTINGS in json.loads((tmp_path / DIGESTS).read_text())
    write_chat_settings(tmp_path, ChatSettings(), None)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    (tmp_path / CHAT_SETTINGS).write_text('{"date": "soon"}')
    with pytest.raises(ArtifactError, match=CHAT_SETTINGS):
        read_chat_settings(tmp_path)


def sentencepiece(scheme: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer that puts a blank before a text, as SentencePiece does."""
    characters = sorted({"▁", "\n", *map(chr, range(32, 127))})
    vocabulary = {character: index for index, character in enumerate(["<unk>", *characters])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    if scheme == "legacy":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        parts = [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        tokenizer.decoder = decoders.Sequence(parts)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", unk_token="<unk>", additional_special_tokens=[CHATML[0]]
    )


@pytest.mark.parametrize("scheme", ["first", "always", "never", "legacy"])
def test_a_demonstration_has_the_ids_of_the_templates_whole_text(scheme: str) -> None:
    tokenizer = sentencepiece(scheme)
    tokenizer.chat_template = PLAIN
    turns = ["print(1)", "  x = 1", "done"]
    whole: list[Message] = [*OPENING]
    for turn in turns:
        whole += [{"role": "assistant", "content": turn}, {"role": "user", "content": " ok"}]
    expected = tokenizer.apply_chat_template(whole[:-1], return_dict=False)
    chat = ChatFormat(tokenizer)
    example = encode_example(chat, OPENING, [(turn, " ok") for turn in turns])
    assert list(example.token_ids) == expected
    for turn in turns:
        assert chat.answer(chat.turn_ids(turn)) == turn == chat.decode(chat.turn_ids(turn))
    assert chat.decode(tokenizer.convert_tokens_to_ids(list("▁▁x"))) == "  x"


def test_a_text_that_would_merge_with_the_prompt_keeps_the_border() -> None:
    """Sampling begins after the prompt's tokens, so a written turn must too."""
    tokenizer = byte_tokenizer(PLAIN, CHATML)
    newline = tokenizer.convert_ids_to_tokens(tokenizer.encode("\n")[0])
    merged = json.loads(tokenizer.backend_tokenizer.to_str())
    merged["model"]["vocab"][newline * 2] = max(merged["model"]["vocab"].values()) + 1000
    merged["model"]["merges"] = [[newline, newline]]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(merged)),
        additional_special_tokens=list(CHATML),
        chat_template=PLAIN,
    )
    chat = ChatFormat(tokenizer)
    assert chat.turn_ids("\nA")[:-1] == tokenizer.encode("\nA")
    assert chat.turn_ids("\n\nA")[:-1] == tokenizer.encode("\n\nA")
