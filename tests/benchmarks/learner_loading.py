"""Host memory of each rank while a policy is loaded and sharded: read in parts, and as it would be without that.

    python tests/benchmarks/learner_loading.py

Two gloo ranks on a CPU, a Qwen2 of random weights, in float32. `parts`: what an update does (model built empty and
sharded, each rank reads its slices). `whole`: every rank loads the model, then gives away what others hold. Both end
with the same weights. Counted is private memory (RssAnon, looked at every 2 ms) above what a rank held before; pages of
the mapped file are shared by all ranks and the system's to drop, so they are reported apart.

The file is bfloat16, as a model from the hub is, or float32. In the second case transformers maps the file and copies
nothing on a CPU, so both sides need the same; on a GPU `whole` would hold the model once on every device.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from result_file import write_result
from torch import nn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from tasks.core.capacity.flops import ModelShape, parameters
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.learner.distributed import ProcessGroup, join_process_group
from tasks.core.learner.learner import prepare_forward
from tasks.core.learner.training import load_prepared
from tasks.core.policies.loading import load_base_model, with_trained_part

RANKS = 2
SIZES = {
    "vocab_size": 32_000,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
}
POLICY = PolicyConfig(device="cpu")
UPDATE = UpdateConfig.model_validate({"distributed": {"ranks": RANKS}})
MIB = 2**20


def whole(folder: Path, group: ProcessGroup) -> nn.Module:
    policy = with_trained_part(load_base_model(folder, POLICY), POLICY)
    prepare_forward(policy, UPDATE, group)
    return policy


def parts(folder: Path, group: ProcessGroup) -> nn.Module:
    return load_prepared(folder, POLICY, UPDATE, group)


FILES = ("bfloat16", "float32")
LOADERS: dict[str, Callable[[Path, ProcessGroup], nn.Module]] = {"whole": whole, "parts": parts}


class Watched:
    """The most private memory and mapped file pages of this process, in MiB, while it is open."""

    def __enter__(self) -> "Watched":
        self.before, self.peak, self.file = resident("RssAnon"), 0.0, 0.0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.done.wait(0.002):
            self.peak = max(self.peak, resident("RssAnon") - self.before)
            self.file = max(self.file, resident("RssFile"))


def resident(field: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (found,) = (int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    return found / 1024


def rank(side: str, folder: Path, out: Path) -> None:
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with join_process_group(torch.device("cpu")) as group:
        import accelerate  # noqa: F401 - imports are not part of what is measured
        import peft  # noqa: F401

        begin = time.perf_counter()
        with Watched() as watched:
            policy = LOADERS[side](folder, group)
        seconds = time.perf_counter() - begin
        base = {name: weight for name, weight in policy.named_parameters() if ".lora_" not in name}
        found = {
            "peak_mib": round(watched.peak),
            "held_mib": round(resident("RssAnon") - watched.before),
            "mapped_file_mib": round(watched.file),
            "seconds": round(seconds, 2),
            "sums": {name: float(weight.to_local().double().sum()) for name, weight in base.items()},  # type: ignore[operator]
        }
        (out / f"{side}_{group.rank}.json").write_text(json.dumps(found))


def measure(side: str, folder: Path, out: Path) -> list[dict[str, Any]]:
    launch = LaunchConfig(
        1,
        1,
        RANKS,
        run_id=side,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
    )
    elastic_launch(launch, sys.executable)(__file__, side, str(folder), str(out))
    return [json.loads((out / f"{side}_{number}.json").read_text()) for number in range(RANKS)]


def compare(dtype: str, place: Path) -> dict[str, Any]:
    folder = place / dtype
    torch.manual_seed(0)
    Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=False)).to(getattr(torch, dtype)).save_pretrained(folder)
    found = {side: measure(side, folder, place) for side in LOADERS}
    sums = {side: [figures.pop("sums") for figures in ranks] for side, ranks in found.items()}
    assert sums["whole"] == sums["parts"], "the ranks hold other weights"
    peaks = {side: max(figures["peak_mib"] for figures in ranks) for side, ranks in found.items()}
    return {"peak_parts_vs_whole": round(peaks["parts"] / peaks["whole"], 3), **found}


def main() -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    size = parameters(ModelShape.of_config({**SIZES, "model_type": "qwen2"}))
    with tempfile.TemporaryDirectory() as place:
        found = {f"{dtype} file": compare(dtype, Path(place)) for dtype in FILES}
    worst = found["bfloat16 file"]["peak_parts_vs_whole"]
    figures = {"peak_parts_vs_whole": worst, "parameters": size, "model_mib": round(size * 4 / MIB), "ranks": RANKS}
    write_result("learner_loading", {**figures, **found})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rank(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
