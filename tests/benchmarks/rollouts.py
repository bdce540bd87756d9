"""Collection on one core: the agent loop, the engine and the world together, beside `generate` of transformers.

    python tests/benchmarks/rollouts.py [POLICY_FOLDER]

A training iteration of params.yaml is played in pocketworld with every process, the world's too, pinned to one core.
`generate` is then given the same conversations, turn by turn and all at once, which is how a loop without a cache kept
between turns would sample them. The two take turns; `engine_vs_generate` is the median of the ratios of their tokens/s
(the engine's own time, since `generate` steps no world). Every sampled log-prob is compared with that of a full forward
pass over its rollout.

On a machine that does other work too, the wall clock says little: `tokens_per_processor_s` divides by the processor
time of all processes, which is what one core of its own would need.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from processor_time import processor_s
from result_file import write_result
from transformers import PreTrainedModel
from transformers.utils import logging

from tasks.core.config.collection import CollectionConfig
from tasks.core.config.params import load_params
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.world import WorldSection
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_base_model, load_tokenizer
from tasks.core.rollouts.planning import PlaySettings, draw_tasks, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats

Row = dict[str, Any]
ROUNDS = 3
POLICY = PolicyConfig(device="cpu")
COLLECTION = load_params(Path(__file__).parents[2] / "params.yaml").collection


def collect(
    world: World, engine: TransformersEngine, chat: ChatFormat, seed: int, collection: CollectionConfig = COLLECTION
) -> tuple[list[Row], CollectionStats]:
    tasks = [task for task in world.tasks("train") if task.difficulty < 3]
    drawn = draw_tasks(tasks, [1.0] * len(tasks), collection.tasks_per_iteration, seed)
    planned, stats = plan_rollouts(drawn, collection.rollouts_per_task, seed), CollectionStats()
    rows = play_rollouts(world, engine, chat, planned, PlaySettings.of_training(collection), policy=None, stats=stats)
    return rows, stats


def pocketworld() -> World:
    with tempfile.TemporaryDirectory() as folder:
        prepare_world_folder(WorldSection.of("pocketworld"), Path(folder) / "world")
        return open_world(WorldSection.of("pocketworld"), Path(folder) / "world")


def generate_rate(model: PreTrainedModel, rows: list[Row], chat: ChatFormat) -> float:
    """Tokens/s of `generate` over the turns of the rollouts, all rollouts in one padded batch."""
    tokens, seconds = 0, 0.0
    for turn in range(max(len(row["turns"]) for row in rows)):
        starts = [row["turn_index"].index(turn) for row in rows if turn in row["turn_index"]]
        prompts = [row["token_ids"] for row in rows if turn in row["turn_index"]]
        longest = max(row["turn_index"].count(turn) for row in rows)
        width = max(starts)
        ids, mask = torch.zeros(len(starts), width, dtype=torch.int64), torch.zeros(len(starts), width)
        for place, (prompt, start) in enumerate(zip(prompts, starts, strict=True)):
            ids[place, width - start :], mask[place, width - start :] = torch.tensor(prompt[:start]), 1
        begin = time.perf_counter()
        sampled = model.generate(
            ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=longest, eos_token_id=list(chat.stop_ids)
        )[:, width:]
        seconds += time.perf_counter() - begin
        stopped = torch.isin(sampled, torch.tensor(chat.stop_ids)).int().cumsum(dim=1)
        tokens += int((stopped == 0).sum() + (stopped.max(dim=1).values > 0).sum())
    return tokens / seconds


@torch.inference_mode()
def largest_difference(model: PreTrainedModel, rows: list[Row]) -> float:
    """Over all sampled ids: |engine log-prob - log-prob of a full forward pass|."""
    worst = 0.0
    for row in rows:
        ids, sampled = torch.tensor(row["token_ids"]), torch.tensor(row["policy_mask"])[1:]
        logprobs = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        difference = (logprobs - torch.tensor(row["engine_logprobs"])[1:])[sampled].abs()
        worst = max(worst, float(difference.max()))
    return worst


def measure(policy: Path) -> dict[str, Any]:
    model, chat = load_base_model(policy, POLICY), ChatFormat(load_tokenizer(policy))
    engine = TransformersEngine(load_base_model(policy, POLICY))
    world = pocketworld()
    collect(world, engine, chat, seed=0)
    collections, rates, costs, worst, rows = [], [], [], 0.0, []
    for seed in range(1, ROUNDS + 1):
        before = processor_s()
        rows, stats = collect(world, engine, chat, seed)
        costs.append(stats.generated_tokens / (processor_s() - before))
        collections.append(stats)
        rows = [row for row in rows if any(row["policy_mask"])]
        rates.append(generate_rate(model, rows, chat))
        worst = max(worst, largest_difference(model, rows))
    world.close()
    median = sorted(collections, key=lambda stats: stats.tokens_per_s)[ROUNDS // 2]
    return {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "episodes": len(rows),
        "tokens_per_episode": round(statistics.mean(len(row["token_ids"]) for row in rows), 1),
        "generated_per_episode": round(statistics.mean(sum(row["policy_mask"]) for row in rows), 1),
        "turns_per_episode": round(statistics.mean(len(row["turns"]) for row in rows), 2),
        "generated_tokens_per_s": round(median.tokens_per_s),
        "tokens_per_processor_s": round(statistics.median(costs)),
        "engine_tokens_per_s": round(median.generated_tokens / median.engine_s),
        "engine_s": round(median.engine_s, 3),
        "waiting_for_world_s": round(median.waiting_s, 3),
        "wall_s": round(median.wall_s, 3),
        "generate_tokens_per_s": round(statistics.median(rates)),
        "engine_vs_generate": round(
            statistics.median(
                stats.generated_tokens / stats.engine_s / rate for stats, rate in zip(collections, rates, strict=True)
            ),
            2,
        ),
        "largest_logprob_difference": worst,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure collection on one core.")
    parser.add_argument("policy", nargs="?", type=Path, default=Path(PolicyConfig().source))
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    write_result("rollouts", {"policy": str(arguments.policy), **measure(arguments.policy)})


if __name__ == "__main__":
    main()
