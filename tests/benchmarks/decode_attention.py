"""Attention of a decoding step on one core in bfloat16: torch's kernel beside plain products in float32.

    python tests/benchmarks/decode_attention.py

In SmolLM2's shape (9 heads over 3 of width 64), for conversations of as many cached positions. The two take turns;
`speed_up` is the median of the ratios of their seconds, and an `error` the largest difference from float64.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from result_file import write_result
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tasks.core.engines.transformers.decode_attention import attend_by_products

ROUNDS, CALLS = 5, 10
HEADS, CACHED_HEADS, WIDTH = 9, 3, 64
SIZES = ((24, 200), (24, 800), (48, 400), (96, 400))


def seconds(attend: Callable[[], Tensor]) -> float:
    begun = time.perf_counter()
    for _ in range(CALLS):
        attend()
    return (time.perf_counter() - begun) / CALLS


def compared(rows: int, positions: int) -> dict[str, Any]:
    torch.manual_seed(0)
    query = torch.randn(rows, HEADS, 1, WIDTH).bfloat16()
    key, value = (torch.randn(rows, CACHED_HEADS, positions, WIDTH).bfloat16() for _ in range(2))
    hidden = torch.arange(positions) >= torch.randint(1, positions + 1, (rows, 1, 1, 1))
    mask = torch.zeros(hidden.shape).bfloat16().masked_fill_(hidden, torch.finfo(torch.bfloat16).min)
    grouped = query.view(rows, CACHED_HEADS, -1, WIDTH)
    ways: dict[str, Callable[[], Tensor]] = {
        "kernel": lambda: scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True),
        "products": lambda: attend_by_products(grouped, key, value, mask, None).view_as(query),
    }
    wide = (part.double() for part in (query, key, value, mask))
    exact = scaled_dot_product_attention(*wide, enable_gqa=True)
    errors = {name: float(f"{(attend().double() - exact).abs().max():.1e}") for name, attend in ways.items()}
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, attend in ways.items():
            took[name].append(seconds(attend))
    ratios = [kernel / products for kernel, products in zip(took["kernel"], took["products"], strict=True)]
    figures = {f"{name}_ms": round(1000 * statistics.median(found), 2) for name, found in took.items()}
    return {"rows": rows, "positions": positions, **figures, "speed_up": round(statistics.median(ratios), 2)} | {
        "error": errors
    }


@torch.inference_mode()
def main() -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    write_result("decode_attention", {"by_size": [compared(*size) for size in SIZES]})


if __name__ == "__main__":
    main()
