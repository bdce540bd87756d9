import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tasks.core.interfaces.world import Message
from tasks.core.policies.chat_format import ChatFormat, ChatTemplateError

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
ANSWER = "print(1)"


def byte_tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    vocabulary = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    fast.chat_template = template
    return fast


@pytest.fixture(scope="module")
def qwen() -> ChatFormat:
    return ChatFormat(byte_tokenizer(QWEN))


@pytest.mark.parametrize("template", [QWEN, TRIMMING], ids=["qwen", "trimming"])
@pytest.mark.parametrize("system", [True, False])
def test_ids_turn_by_turn_are_those_of_the_whole_conversation(template: str, system: bool) -> None:
    tokenizer = byte_tokenizer(template)
    chat = ChatFormat(tokenizer)
    opening: list[Message] = [{"role": "system", "content": "Act."}, *ASKED] if system else ASKED
    turn = [*tokenizer.encode(ANSWER), chat.stop_ids[0]]
    played = chat.prompt_ids(opening) + turn + chat.continuation_ids("  1\n", closed=True)
    whole: list[Message] = [*opening, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "  1\n"}]
    assert played == tokenizer.apply_chat_template(whole, add_generation_prompt=True, return_dict=False)


@pytest.mark.parametrize("template", [GEMMA, DROPPING], ids=["gemma", "dropping"])
def test_a_template_without_system_messages_shows_theirs_in_the_users_first(template: str) -> None:
    chat = ChatFormat(byte_tokenizer(template))
    opening: list[Message] = [{"role": "system", "content": "Act."}, *ASKED]
    whole: list[Message] = [{"role": "user", "content": "Act.\n\nPay Anna."}]
    assert chat.render(opening) == chat.render(whole)
    assert chat.prompt_ids(opening) == chat.prompt_ids(whole)


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
