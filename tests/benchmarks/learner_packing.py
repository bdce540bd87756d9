"""How much of an update's time is spent on nothing, because of how rollouts are packed.

    python tests/benchmarks/learner_packing.py

`packing_waste` is the largest share, over all workloads and ranks, of the positions that the ranks have time for and
that hold no token of a rollout: padding (a row has none: it ends with its last rollout), padding packs, and waiting for
the rank with the fullest pack of a round. Minibatches of 32 are drawn as in training. `real` are 240 rollouts that
the shipped policy plays in pocketworld; `paper` has lengths that LOOP's limits make likely: 2,000 to 32,000 tokens.
`unfilled` is what the packs hold less than `tokens_per_pack`; no time is lost by it. With 16 ranks a minibatch of 32
leaves two rollouts for each, so the longest sets the time: that is reported, but not in the figure.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from result_file import write_result
from rollouts import COLLECTION, POLICY, collect, pocketworld

from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.learner.packing import first_fit_decreasing, spread
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_base_model, load_tokenizer

SHIPPED = Path(__file__).parents[2] / "data/base_policies/pocket"
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
    changes = {"early_stop": None, "tasks_per_iteration": 40, "rollouts_per_task": 6}
    engine, chat = TransformersEngine(load_base_model(SHIPPED, POLICY)), ChatFormat(load_tokenizer(SHIPPED))
    world = pocketworld()
    rows, _ = collect(world, engine, chat, 0, COLLECTION.model_copy(update=changes))
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
