"""The embedded policy: a tiny Qwen2 whose attention starts as a copying machine, and its tokenizer.

The tokenizer is Qwen2's with one token per word of a closed vocabulary. A tiny model learns to copy names and numbers
only when each is one token that looks the same everywhere. So words carry no leading blank, numbers come in pairs of
digits from the left, and fixed phrases of code are one token. Text outside the vocabulary is spelt in bytes: every text
(in Unicode's normal form C, as Qwen2 has it) returns exactly.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import nn

from tasks.core.config.section import Section

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer
    from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention


class TinyQwen2(Section):
    """Sizes of the embedded policy. Every attention back end of vLLM accepts heads of 64."""

    layers: int = 2
    width: int = 128
    heads: int = 2
    feed_forward: int = 256
    context_length: int = 2048
    rope_theta: float = 10_000.0
    induction: bool = False
    """Whether the first two layers begin with an induction circuit, which copies what followed a token before."""


EMBEDDING_STD = 0.1
COPY_SCALE = 0.5
RESIDUAL_STD = 0.02
HEAD = 64
"""Width of an attention head of the induction circuit."""


def new_model(sizes: TinyQwen2, vocabulary: int, eos_token_id: int, pad_token_id: int, seed: int) -> "Qwen2ForCausalLM":
    """Return an untrained model in float32, drawn from `seed` alone.

    Each attention layer writes what it attends to back into the residual stream unchanged (V orthonormal, O its
    transpose, scaled), so that the model only has to learn WHERE to look before it can copy a name. Without it, a model
    of this size hardly learns to copy at all.

    Raises ValueError for an induction circuit in a model without two layers of two heads of 64.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=sizes.width,
        intermediate_size=sizes.feed_forward,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        max_position_embeddings=sizes.context_length,
        rope_parameters={"rope_type": "default", "rope_theta": sizes.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    _initialise(model, generator)
    if sizes.induction:
        _set_induction(model, sizes.rope_theta, generator)
    return model


@torch.no_grad()
def _initialise(model: "Qwen2ForCausalLM", generator: torch.Generator) -> None:
    width = model.config.hidden_size
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.fill_(1.0)
        elif name.endswith("bias"):
            weight.zero_()
        elif "embed_tokens" in name:
            weight.normal_(0.0, EMBEDDING_STD, generator=generator)
        elif "down_proj" in name:
            weight.normal_(0.0, RESIDUAL_STD, generator=generator)
        else:
            weight.normal_(0.0, width**-0.5, generator=generator)
    for layer in model.model.layers:
        values = nn.init.orthogonal_(layer.self_attn.v_proj.weight, generator=generator)
        layer.self_attn.o_proj.weight.copy_(COPY_SCALE * values.T)


_NOTE = 0.28
"""How much of the previous token the first layer writes: about as much as the present token's own embedding has."""
_SHARPNESS = 2.6
_FAST, _SLOW = 8, 13
"""The first 8 rotary frequencies tell neighbouring positions apart; those from 13 on turn too slowly for that."""
_OTHERS = 0.2
_FEED_FORWARD = 0.25


@torch.no_grad()
def _set_induction(model: "Qwen2ForCausalLM", theta: float, generator: torch.Generator) -> None:
    """Set an induction circuit (Olsson et al., arXiv 2209.11895) into the first heads of the first two layers.

    Head 0 of layer 0 attends to the previous token and notes it in directions of its own. Head 0 of layer 1 looks for
    the position whose note is the present token, and copies what stands there. The other head and the feed-forward
    parts begin small, so that training starts from this circuit. Training alone did not find it within 1,200 steps.

    Raises ValueError for a model that is not two heads of 64 wide or has one layer.
    """
    config = model.config
    if config.hidden_size != 2 * HEAD or config.num_attention_heads != 2 or config.num_hidden_layers < 2:
        raise ValueError("an induction circuit needs two layers or more, of two heads of 64")
    basis = torch.linalg.qr(torch.randn(2 * HEAD, 2 * HEAD, generator=generator))[0]
    content, note = basis[:, :HEAD].T, basis[:, HEAD:]
    for layer in model.model.layers:
        layer.mlp.down_proj.weight *= _FEED_FORWARD
    previous, matching = (layer.self_attn for layer in model.model.layers[:2])
    _attend_to_previous_token(previous, theta)
    previous.v_proj.weight[:HEAD], previous.o_proj.weight[:, :HEAD] = content, _NOTE * note
    hardly_turns = (torch.arange(HEAD // 2) >= _SLOW).float().repeat(2)[:, None]
    matching.q_proj.weight[:HEAD] = _SHARPNESS * content * hardly_turns
    matching.k_proj.weight[:HEAD] = _SHARPNESS * note.T * hardly_turns
    matching.v_proj.weight[:HEAD], matching.o_proj.weight[:, :HEAD] = content, content.T
    for attention in (previous, matching):
        attention.o_proj.weight[:, HEAD:] *= _OTHERS


def _attend_to_previous_token(attention: "Qwen2Attention", theta: float) -> None:
    """Let head 0 score a position by its distance alone: highest for the token before.

    The bias of the keys is 1 on the fast rotary pairs; that of the queries is the same, turned back by one position.
    """
    angles = theta ** (-torch.arange(HEAD // 2) * 2 / HEAD)
    strength = 8.0 * (torch.arange(HEAD // 2) < _FAST)
    attention.q_proj.weight[:HEAD] *= 0.1
    attention.k_proj.weight[:HEAD] *= 0.1
    attention.k_proj.bias[:HEAD] = torch.cat([strength, 0 * strength])
    attention.q_proj.bias[:HEAD] = torch.cat([strength * angles.cos(), -strength * angles.sin()])


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
