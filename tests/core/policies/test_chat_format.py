"""Conversations as ids by a chat template, and where a turn ends: among others with Qwen2.5-Instruct's (Apache 2.0)."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.engine import Generation, GenerationRequest, SamplingSettings
from tasks.core.interfaces.world import Message
from tasks.core.policies.chat_format import ChatFormat, ChatTemplateError
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.records.files import ArtifactError
from tests.tiny_models import tiny_qwen2

QWEN = """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
TRIMMING = """{{- '<|endoftext|>' }}{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n\\n' + message['content'] | trim + '<|im_end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n\\n' }}{% endif %}"""
REWRITING = """{%- for message in messages %}{%- if message.role == 'user' and not loop.last %}
{{- '<|im_start|>user\\n(earlier)<|im_end|>' }}{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
COUNTING = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + (loop.index | string) + message.content + '<|im_end|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant' + (messages | length + 1) | string }}{%- endif %}"""
TWO_OPENERS = """{%- for message in messages %}{%- if message.role == 'user' %}
{{- '<|im_start|>' + message.content + '<|im_end|>' }}{%- else %}{{- message.content + '<|endoftext|>' }}{%- endif %}
{%- endfor %}"""
"""A template like Mistral's, with [INST] and [/INST] around the user's text."""
GEMMA = """{{- '<|endoftext|>' }}{%- if messages[0]['role'] == 'system' %}
{{- raise_exception('System role not supported') }}{%- endif %}{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
DROPPING = """{%- for message in messages if message['role'] != 'system' %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
UNMARKED = "{%- for message in messages %}{{- message.role + ': ' + message.content }}{%- endfor %}{{- 'assistant: ' }}"

ASKED: list[Message] = [{"role": "user", "content": "Pay Anna."}]
OPENING: list[Message] = [{"role": "system", "content": "Act."}, *ASKED]
ANSWER = "print(1)"


def byte_tokenizer(template: str | None, special: Mapping[str, int] = MappingProxyType({})) -> PreTrainedTokenizerFast:
    vocabulary = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE({**vocabulary, **special}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    ends = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "additional_special_tokens": ["<|im_start|>"]}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **ends)


@pytest.fixture(scope="module")
def qwen() -> ChatFormat:
    return ChatFormat(byte_tokenizer(QWEN))


@pytest.mark.parametrize("template", [QWEN, TRIMMING], ids=["qwen", "trimming"])
@pytest.mark.parametrize("system", [True, False])
def test_ids_turn_by_turn_are_those_of_the_whole_conversation(template: str, system: bool) -> None:
    tokenizer = byte_tokenizer(template)
    chat = ChatFormat(tokenizer)
    opening = OPENING if system else ASKED
    turn = [*tokenizer.encode(ANSWER), chat.stop_ids[0]]
    played = chat.prompt_ids(opening) + turn + chat.continuation_ids("  1\n", closed=True)
    whole: list[Message] = [*opening, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "  1\n"}]
    assert played == tokenizer.apply_chat_template(whole, add_generation_prompt=True, return_dict=False)


@pytest.mark.parametrize("template", [GEMMA, DROPPING], ids=["gemma", "dropping"])
def test_a_template_without_system_messages_shows_theirs_in_the_users_first(template: str) -> None:
    chat = ChatFormat(byte_tokenizer(template))
    whole: list[Message] = [{"role": "user", "content": "Act.\n\nPay Anna."}]
    assert chat.render(OPENING) == chat.render(whole)
    assert chat.prompt_ids(OPENING) == chat.prompt_ids(whole)


def test_the_default_system_message_comes_once(qwen: ChatFormat) -> None:
    assert qwen.render(ASKED).count("You are Qwen") == 1
    assert "You are Qwen" not in qwen._tokenizer.decode(qwen.continuation_ids("1", closed=False))


def test_a_cut_turn_is_closed_by_the_continuation(qwen: ChatFormat) -> None:
    cut = qwen.continuation_ids("1", closed=False)
    assert cut == [qwen.stop_ids[0], *qwen.continuation_ids("1", closed=True)]


@pytest.mark.parametrize("template", [QWEN, GEMMA, DROPPING], ids=["qwen", "gemma", "dropping"])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("observation", ["seen", "two\nlines <|im_start", "", " user\n"])
def test_an_observation_is_read_back_from_its_ids(template: str, closed: bool, observation: str) -> None:
    chat = ChatFormat(byte_tokenizer(template))
    assert chat.observation(chat.continuation_ids(observation, closed=closed)) in (observation, observation.strip())


def test_stop_ids_are_end_of_turn_then_end_of_text_then_openers() -> None:
    tokenizer = byte_tokenizer(QWEN)
    end, text, opener = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>", "<|im_start|>"])
    assert ChatFormat(tokenizer).stop_ids == (end, opener)
    tokenizer.eos_token = "<|endoftext|>"
    assert ChatFormat(tokenizer).stop_ids == (end, text, opener)
    tokenizer.chat_template = TWO_OPENERS
    assert ChatFormat(tokenizer).stop_ids == (text, opener, end)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["<|im_end|>", "<|im_start|>", "assistant", "\n", "<", "|", "im_end|>"])).map("".join))
def test_no_observation_can_forge_a_turn(qwen: ChatFormat, observation: str) -> None:
    marks = set(qwen._tokenizer.all_special_ids)
    count = sum(token in marks for token in qwen.continuation_ids(observation, closed=False))
    assert count == sum(token in marks for token in qwen.continuation_ids("", closed=False))


@settings(max_examples=60)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_an_observation_arrives_whole(qwen: ChatFormat, observation: str) -> None:
    if "<|" not in observation:
        assert f"user\n{observation}\n" in qwen.decode(qwen.continuation_ids(observation, closed=True))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat template"),
        (REWRITING, "an answer changes the text before it"),
        (COUNTING, "a later turn rewrites earlier ones"),
        (UNMARKED, "no special token"),
    ],
)
def test_unusable_templates_are_refused(template: str | None, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        ChatFormat(byte_tokenizer(template))


def test_cached_ids_cannot_be_changed_by_callers() -> None:
    chat = ChatFormat(byte_tokenizer(QWEN))
    opening, reply = chat.prompt_ids(ASKED), chat.continuation_ids("seen", closed=False)
    kept = list(opening), list(reply)
    opening.clear()
    reply.clear()
    assert (chat.prompt_ids(ASKED), chat.continuation_ids("seen", closed=False)) == kept
    assert chat.continuation_ids("seen", closed=True) != kept[1]
    assert chat.prompt_ids([{"role": "system", "content": "Pay Anna."}]) != kept[0]


END_OF_TEXT, OPENER, END_OF_TURN = 151643, 151644, 151645
SPECIAL = {"<|endoftext|>": END_OF_TEXT, "<|im_start|>": OPENER, "<|im_end|>": END_OF_TURN}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a base policy's folder, as far as its chat format needs it, with Qwen2.5-Instruct's generation config."""
    folder = tmp_path_factory.mktemp("qwen")
    template = (Path(__file__).parent / "qwen2_5.jinja").read_text()
    byte_tokenizer(template, SPECIAL).save_pretrained(folder)
    ends = {"eos_token_id": [END_OF_TURN, END_OF_TEXT], "pad_token_id": END_OF_TEXT, "temperature": 0.7}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    return folder


@pytest.fixture(scope="module")
def chat(folder: Path) -> ChatFormat:
    return load_chat_format(folder)


def whole_conversation(chat: ChatFormat, said: str) -> list[int]:
    """Return the ids of the whole conversation by the template: opening, turn, observation, generation prompt."""
    messages: list[Message] = [*OPENING, {"role": "assistant", "content": said}, {"role": "user", "content": "1"}]
    return chat._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)  # type: ignore


def test_a_turn_ends_at_every_end_of_the_model_and_at_an_opener(chat: ChatFormat) -> None:
    assert chat.stop_ids == (END_OF_TURN, END_OF_TEXT, OPENER)


@pytest.mark.parametrize("stop", [END_OF_TURN, END_OF_TEXT, OPENER, None])
def test_the_conversation_goes_on_as_the_template_has_it_however_a_turn_stopped(
    chat: ChatFormat, stop: int | None
) -> None:
    sampled = [*chat._encode("print(1)"), *([] if stop is None else [stop])]
    turn = chat.kept_ids(sampled)
    assert list(turn) == sampled[: len(turn)] and chat.closes(turn) == (stop == END_OF_TURN)
    played = [*chat.prompt_ids(OPENING), *turn, *chat.continuation_ids("1", closed=chat.closes(turn))]
    assert played == whole_conversation(chat, "print(1)")
    assert chat.decode(turn) == "print(1)"


@pytest.mark.parametrize("stop", [END_OF_TURN, END_OF_TEXT, OPENER])
def test_a_turn_that_is_only_its_stop_id_keeps_it(chat: ChatFormat, stop: int) -> None:
    turn = chat.kept_ids([stop])
    assert turn == (stop,) and chat.decode(turn) == "" and chat.closes(turn) == (stop == END_OF_TURN)
    assert chat.kept_ids([]) == () and not chat.closes(())


@pytest.mark.parametrize("ends", [None, [], END_OF_TURN])
def test_a_generation_config_may_name_one_end_or_none(folder: Path, tmp_path: Path, ends: object) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    assert load_chat_format(tmp_path).stop_ids == (END_OF_TURN, OPENER)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": "<|im_end|>"}))
    with pytest.raises(ArtifactError, match="eos_token_id must be an id"):
        load_chat_format(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    assert load_chat_format(tmp_path).stop_ids == (END_OF_TURN, OPENER)


@pytest.mark.parametrize("stop", SPECIAL.values())
def test_the_engine_of_this_process_stops_at_each(chat: ChatFormat, stop: int) -> None:
    engine = TransformersEngine(_model_that_says(stop))
    prompt, settings = chat.prompt_ids(OPENING), SamplingSettings(0.0, 6, chat.stop_ids)
    generation = _turn(engine, GenerationRequest("a", prompt, settings, seed=0))
    assert generation.token_ids == (stop,) and generation.stop_reason == "stop"
    (endless,) = {_turn(engine, GenerationRequest("b", prompt, SamplingSettings(0.0, 6, ()), seed=0))}
    assert endless.token_ids == (stop,) * 6 and endless.stop_reason == "length"


def _turn(engine: TransformersEngine, request: GenerationRequest) -> Generation:
    engine.submit(request)
    (generation,) = engine.collect()
    return generation


def _model_that_says(token: int) -> Qwen2ForCausalLM:
    """Make a model of Qwen2's architecture and vocabulary whose likeliest id is always `token`."""
    sizes = {"hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = tiny_qwen2(vocab_size=152064, num_key_value_heads=1, **sizes)
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.model.norm.weight.zero_()
        model.lm_head.bias = torch.nn.Parameter(torch.zeros(152064))
        model.lm_head.bias[token] = 9.0
    return model
