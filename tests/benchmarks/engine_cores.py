"""The engine in this process on one core and on all of them: how much sooner a larger model samples.

    python tests/benchmarks/engine_cores.py POLICY_FOLDER [--rows 24 64 96] [--dtype float32]

Of each number of conversations: a prefill of 60 ids each, and one step. One core and all
cores take turns, `speed_up` is the median of the ratios of their seconds, `same`: they sampled the same bits.
"""

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from result_file import write_result

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.engine import GenerationRequest, SamplingSettings
from tasks.core.policies.loading import load_base_model
from tasks.core.processes.usable_cores import CORES_VARIABLE, usable_cores

ROUNDS, STEPS, PROMPT = 3, 5, 60


def sample(engine: TransformersEngine, rows: int) -> tuple[float, float, list[list[float]]]:
    """Seconds of the prefill and of one step, and the log-probs of all that was sampled."""
    ids = np.random.default_rng(0).integers(0, 256, (rows, PROMPT))
    for row, prompt in enumerate(ids.tolist()):
        engine.submit(GenerationRequest(str(row), prompt, SamplingSettings(1.0, STEPS + 1, ()), row))
    begun = time.perf_counter()
    engine._prefill()
    prefilled = time.perf_counter()
    for _ in range(STEPS):
        engine._step()
    stepped = time.perf_counter()
    found = {one.sequence_id: list(one.logprobs) for one in engine.collect()}
    for name in found:
        engine.release(name)
    return prefilled - begun, (stepped - prefilled) / STEPS, [found[name] for name in sorted(found, key=int)]


def compared(engine: TransformersEngine, rows: int) -> dict[str, Any]:
    took: dict[str, list[tuple[float, float]]] = {"one_core": [], "all_cores": []}
    logprobs = []
    for _ in range(ROUNDS):
        for name, cores in (("one_core", "1"), ("all_cores", "default")):
            os.environ[CORES_VARIABLE] = cores
            *seconds, sampled = sample(engine, rows)
            took[name].append((seconds[0], seconds[1]))
            logprobs.append(sampled)
    figures: dict[str, Any] = {"rows": rows, "same": all(one == logprobs[0] for one in logprobs)}
    for place, kind in enumerate(("prefill", "step")):
        one, every = ([pair[place] for pair in took[name]] for name in took)
        figures[f"{kind}_seconds_on_one_core"] = round(statistics.median(one), 3)
        figures[f"{kind}_speed_up"] = round(statistics.median(np.divide(one, every)), 2)
    return figures


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="The engine in this process on one core and on all.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[24, 64, 96])
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    engine = TransformersEngine(load_base_model(asked.folder, PolicyConfig(dtype=asked.dtype, device="cpu")))
    figures = [compared(engine, rows) for rows in asked.rows]
    write_result("engine_cores", {"cores": usable_cores(), "dtype": asked.dtype, "by_rows": figures})


if __name__ == "__main__":
    main()
