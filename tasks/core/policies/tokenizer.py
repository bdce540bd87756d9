"""The embedded policy's tokenizer: Qwen2's class with one token per word of a closed vocabulary, bytes for all else.

A tiny model learns to copy names and numbers only when each is one token that looks the same everywhere. So words carry
no leading blank, numbers come in pairs of digits from the left, and fixed phrases of code are one token. Text outside
the vocabulary is spelt in bytes: every text (in Unicode's normal form C, as Qwen2 has it) returns exactly.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer

END_OF_TEXT, START_OF_TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""ChatML, as Qwen2 has it, without a default system message."""


def build_tokenizer(pieces: Iterable[str], context_length: int) -> "Qwen2Tokenizer":
    """Build a tokenizer that takes each of `pieces` (words, numbers, phrases) as one token anywhere, the longest first.

    Ids: the 256 bytes, the special tokens, then the pieces, sorted. One-byte pieces are bytes already.
    """
    from transformers import AddedToken, Qwen2Tokenizer

    tokenizer = Qwen2Tokenizer(
        vocab={symbol: byte for byte, symbol in enumerate(_byte_symbols())},
        merges=[],
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        extra_special_tokens=[START_OF_TURN],
        model_max_length=context_length,
    )
    longer = sorted(piece for piece in set(pieces) if len(piece.encode()) > 1)
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in longer])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _byte_symbols() -> list[str]:
    """Return the printable character that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("\u00a1"), ord("\u00ac") + 1), *range(ord("\u00ae"), 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
