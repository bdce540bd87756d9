"""Mutual information of prompts and responses: does a policy still answer what it is asked?

RAGEN-2 (arXiv 2604.06268): the entropy cannot distinguish varied answers from answers that vary whatever was asked
("template collapse"). Its estimator (RAGEN, docs/reference_mutual_information_metrics.md, 4.3, per sequence), over N
prompts x_j and M responses z_i, each to the prompt x(i):

    I = 1/M sum_i [ log p(z_i | x(i)) - log 1/N sum_j p(z_i | x_j) ]  <=  log N

Here x is the whole prompt and z the whole first turn. RAGEN's z is the text between the <think> tags, which not all of
our worlds have. Here x is drawn from the prompts of the training batch; RAGEN draws from those of all rollouts.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from tasks.core.config.monitor import InformationConfig
from tasks.core.learner.distributed import ProcessGroup
from tasks.core.learner.logprobs import read_logprobs
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Rollout, pack_rollouts, whole_rollout
from tasks.core.records.training import PromptInformation

UNMEASURED = InformationConfig(prompts=0)
RESPONSES = 16
"""First turns in a sample. With eight prompts it is that of RAGEN-2's figures, at 4% of an update's time."""
Ids = tuple[int, ...]
Pair = tuple[int, Ids]
"""Index of a prompt, and a first turn that answers it."""


def sample_pairs(rollouts: Sequence[Rollout], config: InformationConfig, seed: int) -> tuple[list[Ids], list[Pair]]:
    """Draw different prompts (at most config.prompts) and first turns from them in turn (at most `RESPONSES`).

    Prompts of equal tokens count once. Fewer than two prompts carry no information: then nothing is drawn.
    """
    answers: dict[Ids, list[Ids]] = {}
    for rollout in rollouts:
        prompt, answer = _first_turn(rollout)
        answers.setdefault(prompt, []).append(answer)
    generator = np.random.Generator(np.random.PCG64(seed))
    order = generator.permutation(len(answers))[: config.prompts]
    prompts = [list(answers)[index] for index in order]
    if len(prompts) < 2:
        return [], []
    shuffled = [[answers[prompt][row] for row in generator.permutation(len(answers[prompt]))] for prompt in prompts]
    rounds = range(max(map(len, shuffled)))
    pairs = [
        (prompt_index, answers_to_it[turn])
        for turn in rounds
        for prompt_index, answers_to_it in enumerate(shuffled)
        if turn < len(answers_to_it)
    ]
    return prompts, pairs[:RESPONSES]


def measure_information(
    policy: nn.Module,
    prompts: Sequence[Ids],
    pairs: Sequence[Pair],
    objective: Objective,
    tokens_per_pack: int,
    group: ProcessGroup,
) -> PromptInformation | None:
    """Estimate the information for the present policy (collective); None for an empty sample."""
    if not pairs:
        return None
    sequences = [whole_rollout(prompt + answer, len(prompt)) for _, answer in pairs for prompt in prompts]
    device = next(policy.parameters()).device
    packs = pack_rollouts(sequences, range(len(sequences)), tokens_per_pack, device, group)
    read = read_logprobs(policy, packs, sequences, objective, group)
    logprobs = torch.stack([sequence_logprobs.sum() for sequence_logprobs in read]).reshape(len(pairs), len(prompts))
    return mutual_information(logprobs.cpu(), [prompt_index for prompt_index, _ in pairs])


def mutual_information(logprobs: Tensor, own: Sequence[int]) -> PromptInformation | None:
    """Estimate from logprobs [M, N] of M responses under N prompts, in nats, and the prompt [M] that each answers.

    None where they are not finite: the update that follows reports what diverged.
    """
    count, prompts = logprobs.shape
    matched = logprobs.double()[torch.arange(count), torch.tensor(own)]
    marginal = torch.logsumexp(logprobs.double(), dim=1) - math.log(prompts)
    nats = float((matched - marginal).mean())
    if not math.isfinite(nats):
        return None
    return PromptInformation(nats=nats, share=nats / math.log(prompts), prompts=prompts, responses=count)


def _first_turn(rollout: Rollout) -> tuple[Ids, Ids]:
    first_turn = rollout.policy_positions[rollout.turns == rollout.turns[0]]
    return tuple(rollout.token_ids[: first_turn[0]].tolist()), tuple(rollout.token_ids[first_turn].tolist())
