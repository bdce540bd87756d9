"""How many of an update's positions repeat: the most that computing shared prefixes once could save.

    python tests/benchmarks/shared_prefixes.py BATCH [BATCH ...]     (training_batch.parquet of some iterations)

A position repeats if another rollout of the same pass has the same ids up to there. An update passes through the whole
batch once without gradients, and through each minibatch with them; only rollouts of one minibatch can share, since the
policy moves between two. Counted among the rollouts of a task (`in_group`) and among all (`anywhere`), as shares of the
positions; of minibatches the mean over five draws. `gradients_without` are the processor seconds of the passes with
gradients without the positions that repeat in a group, as if these cost nothing, over those of all positions: the
embedded policy, one thread, the two in turns.
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import torch
from learner_workloads import shipped_model
from result_file import write_result
from torch import nn

from tasks.core.config.update import UpdateConfig
from tasks.core.learner.learner import backward
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.model import use_packed_attention
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Rollout, draw_minibatches, pack_rollouts, read_rollouts

CONFIG, DRAWS = UpdateConfig(fold_adapter=True), 5


def repeated(rollouts: Sequence[Rollout]) -> int:
    """Return how many positions of the rollouts repeat: in the order of their ids, each repeats its predecessor's."""
    ids = sorted(rollout.token_ids[: rollout.length].tolist() for rollout in rollouts)
    return sum(shared(one, other) for one, other in pairwise(ids))


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def groups_of(rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    """Return the rollouts of each task."""
    groups = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.name.partition(" of ")[2]].append(rollout)
    return list(groups.values())


def without_repeats(rollouts: Sequence[Rollout]) -> Iterator[Rollout]:
    """Yield what is left of the rollouts of a minibatch without the positions that repeat in a group."""
    for group in groups_of(rollouts):
        ordered = sorted(group, key=lambda rollout: rollout.token_ids[: rollout.length].tolist())
        cuts = [0, *(shared(*(each.token_ids[: each.length].tolist() for each in pair)) for pair in pairwise(ordered))]
        for rollout, cut in zip(ordered, cuts, strict=True):
            kept = rollout.policy_positions > cut
            if kept.any():
                yield replace(
                    rollout,
                    token_ids=rollout.token_ids[cut:],
                    policy_positions=rollout.policy_positions[kept] - cut,
                    turns=rollout.turns[kept],
                    engine_logprobs=rollout.engine_logprobs[kept],
                )


def gradient_s(policy: nn.Module, rollouts: Sequence[Rollout]) -> float:
    """Return the processor seconds of the passes with gradients of one minibatch."""
    packs = pack_rollouts(rollouts, range(len(rollouts)), CONFIG.tokens_per_pack, torch.device("cpu"))
    objective = Objective.of(CONFIG, len(rollouts), temperature=1.0)
    attached = compute_fixed_logprobs(policy, packs, rollouts, objective).attach(packs)
    begun = time.process_time()
    backward(policy, attached, objective)
    return time.process_time() - begun


def gradients_without(policy: nn.Module, minibatches: Sequence[Sequence[Rollout]]) -> float:
    """Return the median over the minibatches."""
    ratios = []
    for rollouts in minibatches:
        left = list(without_repeats(rollouts))
        ratios.append(gradient_s(policy, left) / gradient_s(policy, rollouts))
    return round(statistics.median(ratios), 3)


def shares(passes: Sequence[Sequence[Rollout]]) -> dict[str, float]:
    """Return the repeated share of all positions of these passes, in groups and anywhere."""
    in_group = anywhere = positions = 0
    for rollouts in passes:
        in_group += sum(map(repeated, groups_of(rollouts)))
        anywhere += repeated(rollouts)
        positions += sum(rollout.length for rollout in rollouts)
    return {"in_group": round(in_group / positions, 3), "anywhere": round(anywhere / positions, 3)}


def figures(batch: Path, policy: nn.Module | None) -> dict[str, object]:
    """Return the shares of a batch and of its minibatches; with a policy, what its gradients cost without them."""
    rollouts = read_rollouts(pq.read_table(batch))
    drawn = [
        [rollouts[row] for row in rows] for seed in range(DRAWS) for rows in draw_minibatches(rollouts, CONFIG, seed)
    ]
    timed = {} if policy is None else {"gradients_without": gradients_without(policy, drawn[: len(drawn) // DRAWS])}
    positions = sum(rollout.length for rollout in rollouts)
    counted = {"rollouts": len(rollouts), "positions": positions}
    return {**counted, "batch": shares([rollouts]), "minibatches": shares(drawn), **timed}


def main() -> None:
    parser = argparse.ArgumentParser(description="Positions of an update that repeat.")
    parser.add_argument("batches", nargs="+", type=Path, help="of the default")
    parser.add_argument("--count", nargs="*", type=Path, default=[], help="batches of other policies: counted alone")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    policy = shipped_model()
    use_packed_attention(policy)
    found = {str(batch): figures(batch, policy) for batch in asked.batches}
    write_result("shared_prefixes", found | {str(batch): figures(batch, None) for batch in asked.count})


if __name__ == "__main__":
    main()
