"""How much of an update's time is spent on nothing, because of how rollouts are packed.

    python tests/benchmarks/learner_packing.py

`packing_waste` is the largest share, over all workloads and ranks, of the positions that the ranks have time for and
that hold no token of a rollout: padding (a row has none: it ends with its last rollout), padding packs, and waiting for
the rank with the fullest pack of a round. Minibatches of 32 are drawn as in training. `real` are 240 rollouts that
the shipped policy plays in pocketworld; `paper` has lengths that LOOP's limits make likely: 2,000 to 32,000 tokens.
`unfilled` is what the packs hold less than `tokens_per_pack`; no time is lost by it. With 16 ranks a minibatch of 32
leaves two rollouts for each, so the longest sets the time: that is reported, but not in the figure.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from result_file import write_result

from tasks.core.config.params import load_params
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.world import WorldSection
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.learner.packing import first_fit_decreasing, spread
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_base_model, load_tokenizer
from tasks.core.rollouts.planning import PlaySettings, draw_tasks, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "data/base_policies/pocket"
POLICY = PolicyConfig(device="cpu")
TASKS, PER_TASK = 40, 6

MINIBATCH, RANKS = 32, (1, 2, 4, 8, 16)


def figures(lengths: Sequence[int], capacity: int, ranks: int) -> dict[str, float]:
    order = np.random.default_rng(0).permutation(len(lengths))
    tokens = slots = room = 0
    for start in range(0, len(order), MINIBATCH):
        part = [lengths[index] for index in order[start : start + MINIBATCH]]
        bins = first_fit_decreasing(part, capacity) if ranks == 1 else spread(part, capacity, ranks)
        filled = [sum(part[item] for item in members) for members in bins]
        slots += ranks * sum(max(filled[place : place + ranks]) for place in range(0, len(filled), ranks))
        tokens, room = tokens + sum(part), room + capacity * len(bins)
    return {"waste": round(1 - tokens / slots, 4), "unfilled": round(1 - tokens / room, 4)}


def played_lengths() -> list[int]:
    """Return the tokens of each rollout that the shipped policy plays: 40 tasks x 6, none stopped early."""
    collection = load_params(ROOT / "params.yaml").collection.model_copy(update={"early_stop": None})
    engine, chat = TransformersEngine(load_base_model(SHIPPED, POLICY)), ChatFormat(load_tokenizer(SHIPPED))
    with tempfile.TemporaryDirectory() as folder:
        prepare_world_folder(WorldSection.of("pocketworld"), Path(folder) / "world")
        world = open_world(WorldSection.of("pocketworld"), Path(folder) / "world")
    tasks = [task for task in world.tasks("train") if task.difficulty < 3]
    planned = plan_rollouts(draw_tasks(tasks, [1.0] * len(tasks), TASKS, seed=0), PER_TASK, seed=0)
    settings = PlaySettings.of_training(collection)
    rows = play_rollouts(world, engine, chat, planned, settings, policy=None, stats=CollectionStats())
    world.close()
    return [len(row["token_ids"]) - 1 for row in rows if any(row["policy_mask"])]


def main() -> None:
    random = np.random.default_rng(1)
    paper = np.clip(random.lognormal(9.3, 0.6, 240), 2000, 32_000).astype(int).tolist()
    workloads = {"real": (played_lengths(), 2048), "paper": (paper, 32_768)}
    found = {
        name: {
            "rollouts": len(lengths),
            "tokens": sum(lengths),
            "tokens_per_pack": capacity,
            **{f"{ranks} ranks": figures(lengths, capacity, ranks) for ranks in RANKS},
        }
        for name, (lengths, capacity) in workloads.items()
    }
    worst = max(found[name][f"{ranks} ranks"]["waste"] for name in found for ranks in RANKS[:-1])
    write_result("learner_packing", {"packing_waste": worst, "minibatch": MINIBATCH, **found})


if __name__ == "__main__":
    main()
