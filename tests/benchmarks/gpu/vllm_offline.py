"""vLLM's own offline throughput. Run by vllm.py in vLLM's interpreter: lines of JSON in, lines of JSON out.

The first line holds the arguments of `LLM` and the adapter's folder. Every other one is a list of
[prompt ids, max_tokens, stop ids, seed]; its answer tells tokens and seconds.
"""

import json
import os
import sys
import time

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints
    setup = json.loads(sys.stdin.readline())
    model, adapter = LLM(**setup["model"]), LoRARequest("policy", 1, setup["adapter"])
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        turns = json.loads(line)
        prompts = [{"prompt_token_ids": prompt} for prompt, *_ in turns]
        settings = [sampling(*rest) for _, *rest in turns]
        started = time.perf_counter()
        outputs = model.generate(prompts, settings, use_tqdm=False, lora_request=adapter)
        seconds = time.perf_counter() - started
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        print(json.dumps({"tokens": tokens, "seconds": seconds}), file=answers, flush=True)


def sampling(max_tokens: int, stop_ids: list[int], seed: int) -> SamplingParams:
    """As `tasks.core.engines.vllm.client` asks a server for it."""
    return SamplingParams(
        temperature=1.0,
        max_tokens=max_tokens,
        stop_token_ids=stop_ids,
        ignore_eos=True,
        seed=seed,
        logprobs=0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


if __name__ == "__main__":
    main()
