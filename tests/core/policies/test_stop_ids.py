"""The end of a turn and the ids it keeps, with Qwen2.5-Instruct's template and the ids of its special tokens.

The template is the model's (Apache 2.0); the vocabulary has only the bytes and the special tokens, at their ids.
"""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.engine import Generation, GenerationRequest, SamplingSettings
from tasks.core.interfaces.world import Message
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.records.files import ArtifactError
from tests.tiny_models import tiny_qwen2

END_OF_TEXT, OPENER, END_OF_TURN = 151643, 151644, 151645
SPECIAL = {"<|endoftext|>": END_OF_TEXT, "<|im_start|>": OPENER, "<|im_end|>": END_OF_TURN}
ASKED: list[Message] = [{"role": "system", "content": "Act."}, {"role": "user", "content": "Pay Anna."}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a base policy's folder, as far as its chat format needs it, with Qwen2.5-Instruct's generation config."""
    folder = tmp_path_factory.mktemp("qwen")
    letters = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE({**letters, **SPECIAL}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=(Path(__file__).parent / "qwen2_5.jinja").read_text(),
    )
    fast.save_pretrained(folder)
    ends = {"eos_token_id": [END_OF_TURN, END_OF_TEXT], "pad_token_id": END_OF_TEXT, "temperature": 0.7}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    return folder


@pytest.fixture(scope="module")
def chat(folder: Path) -> ChatFormat:
    return load_chat_format(folder)


def whole_conversation(chat: ChatFormat, said: str) -> list[int]:
    """Return the ids of the whole conversation by the template: opening, turn, observation, generation prompt."""
    messages: list[Message] = [*ASKED, {"role": "assistant", "content": said}, {"role": "user", "content": "1"}]
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
    played = [*chat.prompt_ids(ASKED), *turn, *chat.continuation_ids("1", closed=chat.closes(turn))]
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
    prompt, settings = chat.prompt_ids(ASKED), SamplingSettings(0.0, 6, chat.stop_ids)
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
