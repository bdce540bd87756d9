import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import Qwen2Tokenizer

from tasks.core.policies.architecture import TinyQwen2, _byte_symbols, build_tokenizer, new_model
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_tokenizer

WORDS = ("Anna", "Moore", "pay", "name", "phone_number", "print", "7", "42", "(", ")", '"', "=", " ", "\n")
PHRASES = ("print(", ", ", "    ")
PARTS = (*WORDS, *PHRASES, "annA", "1234", "é", "日本", "\r\n", "\t", "\x00", "  ", "<|im_end|>", "Ġ", "👍🏽")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Qwen2Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    built = build_tokenizer((*WORDS, *PHRASES), 512)
    built.save_pretrained(folder)
    new_model(TinyQwen2(), len(built), built.eos_token_id, built.pad_token_id, seed=0).save_pretrained(folder)
    return load_tokenizer(folder)  # with a Qwen2 model, since AutoTokenizer's class depends on its config


def pieces(tokenizer: Qwen2Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([token]) for token in tokenizer.encode(text)]


@settings(max_examples=300)
@given(st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.sampled_from(PARTS)).map("".join)))
def test_every_text_comes_back_exactly(tokenizer: Qwen2Tokenizer, text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna Moore", ["Anna", " ", "Moore"]),
        ('name="Anna"', ["name", "=", '"', "Anna", '"']),
        ("print(phone_number, 42)", ["print(", "phone_number", ", ", "42", ")"]),
        ("wary", list("wary")),
        ("427", ["42", "7"]),
    ],
)
def test_words_numbers_and_phrases_are_single_tokens(tokenizer: Qwen2Tokenizer, text: str, expected: list[str]) -> None:
    assert pieces(tokenizer, text) == expected


def test_byte_symbols_are_the_byte_level_alphabet() -> None:
    assert sorted(_byte_symbols()) == sorted(pre_tokenizers.ByteLevel.alphabet())


def test_the_chat_template_serves_the_agent_loop(tokenizer: Qwen2Tokenizer) -> None:
    chat = ChatFormat(tokenizer)
    assert (
        chat.render([{"role": "user", "content": "pay"}]) == "<|im_start|>user\npay<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [tokenizer.decode([stop]) for stop in chat.stop_ids] == ["<|im_end|>", "<|im_start|>"]


def test_the_same_words_give_the_same_bytes(tmp_path: Path) -> None:
    for name, words in (("a", WORDS), ("b", WORDS[::-1])):
        build_tokenizer(words, 512).save_pretrained(tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
