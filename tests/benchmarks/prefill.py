"""Prefill of the engine in this process, beside the same passes as transformers makes them, the head on top.

    python tests/benchmarks/prefill.py POLICY_FOLDER [--dtype bfloat16] [--rows 24] [--length 120]

`logits_to_keep=1` hands the head a strided slice of the states. A head in its own dtype (`strided`) makes a batched
product of that, which copies the head's weight once per row; one that gives float32 logits (`float32`) widens the head
in every pass. Prefill asks for no logits, so the engine ends a pass when the last layer's keys and values are cached
(`cached`). The three take turns, and `speed_up` is the median of the ratios of their tokens/s in one run.
`largest_difference`: of the log-probs that are sampled next.
"""

import argparse
import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from result_file import write_result

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.engine import GenerationRequest, SamplingSettings
from tasks.core.policies.loading import load_base_model

ROUNDS = 3


def engines(folder: Path, policy: PolicyConfig) -> dict[str, TransformersEngine]:
    """By how a pass of prefill ends."""
    strided, float32, cached = (TransformersEngine(load_base_model(folder, policy)) for _ in range(3))
    for engine in (strided, float32):
        whole = partial(engine._model, logits_to_keep=1)
        engine._read = partial(engine._forward, whole, whole=True)  # type: ignore[method-assign, arg-type]
    vars(strided._model.get_output_embeddings()).pop("forward", None)  # the head in its own dtype
    return {"strided": strided, "float32": float32, "cached": cached}


def prefill(engine: TransformersEngine, prompts: list[list[int]]) -> tuple[float, list[float]]:
    """Seconds of one prefill, and the log-probs of the ids that are sampled after it."""
    for index, ids in enumerate(prompts):
        engine.submit(GenerationRequest(str(index), ids, SamplingSettings(1.0, 1, ()), index))
    with torch.inference_mode():
        begun = time.perf_counter()
        engine._prefill()
        seconds = time.perf_counter() - begun
    found = {one.sequence_id: one.logprobs[0] for one in engine.collect()}
    for name in found:
        engine.release(name)
    return seconds, [found[name] for name in sorted(found, key=int)]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="Prefill with and without the head.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--length", type=int, default=120)
    asked = parser.parse_args()
    compared = engines(asked.folder, PolicyConfig(dtype=asked.dtype, device="cpu"))
    draw = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {name: [] for name in compared}
    differences = []
    for _ in range(ROUNDS):
        prompts = draw.integers(0, 256, (asked.rows, asked.length)).tolist()
        measured = {name: prefill(engine, prompts) for name, engine in compared.items()}
        for name, (took, _logprobs) in measured.items():
            seconds[name].append(took)
        differences.append(np.abs(np.subtract(measured["float32"][1], measured["cached"][1])).max())
    tokens = asked.rows * (asked.length - 1)
    rates = {name: round(tokens / statistics.median(took), 1) for name, took in seconds.items()}
    ratios = {
        name: round(statistics.median(np.divide(took, seconds["cached"])), 2)
        for name, took in seconds.items()
        if name != "cached"
    }
    write_result(
        f"prefill_{asked.dtype}",
        {
            "rows": asked.rows,
            "length": asked.length,
            "tokens_per_s": rates,
            "speed_up": ratios,
            "largest_difference": float(max(differences)),
        },
    )


if __name__ == "__main__":
    main()
