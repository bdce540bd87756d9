"""Compute logits of a model folder by transformers alone: `python -I logits.py`, the request as JSON on stdin.

The answer, JSON on stdout, names the packages; the logits are written to the file that the request names. Nothing of
loopline is imported, so that whoever loads the folder elsewhere gets the same.
"""

import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import torch
from safetensors.torch import save_file

OURS = ("flows", "loopline", "tasks")


@torch.no_grad()
def logits_of(
    model: Any, conversations: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]
) -> dict[str, torch.Tensor]:
    """Return float32 logits [positions, vocabulary] of each conversation by its number, on the CPU."""
    device = next(model.parameters()).device
    found = {}
    for number, (ids, chosen) in enumerate(zip(conversations, positions, strict=True)):
        logits = model(input_ids=torch.tensor([list(ids)], device=device)).logits[0]
        found[str(number)] = logits[list(chosen)].float().cpu().contiguous()
    return found


def main() -> None:
    """Answer one request: model, adapter (or null), dtype, device, threads (or null), conversations, positions, out."""
    from transformers import AutoModelForCausalLM

    request = json.load(sys.stdin)
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    model = AutoModelForCausalLM.from_pretrained(request["model"], dtype=request["dtype"], local_files_only=True)
    if request["adapter"]:
        model.load_adapter(request["adapter"])
    model = model.to(request["device"]).eval()
    save_file(logits_of(model, request["conversations"], request["positions"]), request["out"])
    loaded = sorted({name.partition(".")[0] for name in sys.modules} & set(OURS))
    used = ["torch", "transformers", *(["peft"] if request["adapter"] else [])]
    print(json.dumps({"loaded": loaded, "packages": {name: version(name) for name in used}}))


if __name__ == "__main__":
    main()
