"""No knob of a method is ignored: next to any other, it changes an update's bytes, is refused, or is known to be idle.

Every knob of `advantages` and `update` that decides bytes is changed alone, on top of a method of each kind, and on top
of every other change of what is computed. A tiny batch goes through filter_advantages and one update.
"""

import hashlib
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import AdvantageInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.learner.critic import make_critic
from tasks.core.learner.learner import make_learner, update
from tasks.core.learner.packing import Rollout, read_rollouts
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import ROLLOUTS
from tasks.core.records.tables import write_rows
from tasks.filter_advantages import filter_advantages
from tests.finished_run import played_row
from tests.tiny_models import tiny_qwen2

pytestmark = pytest.mark.whole_runs

VOCABULARY, HIDDEN = 12, 8
Knobs = dict[str, Any]
DigestOf = Callable[[Params], str]

ALL: Knobs = {
    "iterations": 1,
    "collection.turn_progress": True,
    "update.minibatch": 4,
    "update.learning_rate": 0.1,
    "update.max_grad_norm": 1.0,
    "update.kl_stop.limit": 1e9,
    "update.loss.clip_epsilon": 0.9,
    "update.loss.constant_tokens": 8,
}
"""Below every method: minibatches and steps so large that limits are reached."""
METHODS: dict[str, Knobs] = {
    "clipped": {},
    "supervised": {"advantages.estimator": "success", "update.objective": "supervised"},
    "preference": {
        "advantages.pair_gap": 0.1,
        "advantages.pair_choice": "best_and_worst",
        "update.objective": "preference",
    },
    "critic": {
        "advantages.estimator": "episode_return",
        "advantages.min_absolute_advantage": 0.0,
        "update.critic": {"warmup_iterations": 0},
    },
}
CHANGES: Knobs = {
    "advantages.estimator": "turn_progress",
    "advantages.returns": "all_or_nothing",
    "advantages.divide_by_std": "sample",
    "advantages.normalise_over_batch": True,
    "advantages.pair_gap": 0.4,
    "advantages.pair_choice": "best_and_worst",
    "advantages.min_absolute_advantage": 0.7,
    "advantages.top_variance_share": 0.1,
    "advantages.variance_share_of": "largest",
    "update.objective": "supervised",
    "update.loss.importance": "turn",
    "update.loss.unit_weight": "geometric_mean",
    "update.loss.average": "constant",
    "update.loss.constant_tokens": 5,
    "update.loss.clip_epsilon": 0.02,
    "update.loss.clip_epsilon_high": 0.01,
    "update.loss.lower_bound": "symmetric",
    "update.loss.max_behaviour_weight": 0.5,
    "update.loss.correct_engine_mismatch": True,
    "update.loss.kl_coefficient": 0.2,
    "update.loss.kl_gradient": "unbiased",
    "update.loss.entropy_coefficient": 0.1,
    "update.preference.gamma": 0.7,
    "update.preference.beta": 0.5,
    "update.preference.reference": "base",
    "update.critic.credit": "turn",
    "update.critic.rewards": "turns",
    "update.critic.gamma": 0.9,
    "update.critic.turn_gamma": 0.8,
    "update.critic.gae_lambda": 0.7,
    "update.critic.whiten_advantages": True,
    "update.critic.value_range": (0.6, 0.7),
    "update.critic.learning_rate": 0.01,
    "update.critic.decay_iterations": 9,
    "update.critic.warmup_iterations": 20,
    "update.epochs": 1,
    "update.minibatch": 5,
    "update.learning_rate": 0.05,
    "update.weight_decay": 0.2,
    "update.betas": (0.8, 0.9),
    "update.max_grad_norm": 0.05,
    "update.warmup_steps": 3,
    "update.kl_stop.estimator": "k3",
    "update.kl_stop.limit": 1e-9,
    "update.shuffle": False,
}
"""Another value of each knob."""
OTHER_CHANGES = {
    "supervised": {"advantages.estimator": "leave_one_out", "advantages.min_absolute_advantage": 0.0},
    "preference": {"advantages.pair_choice": "sampled"},
}
"""Values that a method needs in place of those."""
SPEED = {
    "tokens_per_pack",
    "share_prefixes",
    "logprob_chunk",
    "fold_adapter",
    "activation_checkpointing",
    "distributed",
}
"""Knobs of `update` that decide about memory and the order of sums, and make no other method."""
OPTIMIZER = {
    "update.epochs",
    "update.minibatch",
    "update.shuffle",
    "update.learning_rate",
    "update.warmup_steps",
    "update.weight_decay",
    "update.betas",
    "update.max_grad_norm",
    "update.kl_stop.estimator",
    "update.kl_stop.limit",
}
"""What is done with a gradient, whatever it is the gradient of: changed on top of each method alone."""
BELOW = (
    "advantages.estimator",
    "advantages.returns",
    "advantages.divide_by_std",
    "advantages.normalise_over_batch",
    "update.objective",
    "update.loss.importance",
    "update.loss.unit_weight",
    "update.loss.average",
    "update.loss.correct_engine_mismatch",
    "update.loss.kl_coefficient",
    "update.critic.credit",
    "update.critic.rewards",
    "update.critic.whiten_advantages",
)
"""Knobs that change what is computed. On top of each of them the others have to matter still; numbers do no such thing.
Changes of `advantages` are below those of a critic, which reads more than the labels that they make, and below no other
of `update`."""


def _has_pairs(params: Params) -> bool:
    return params.advantages.pair_gap is not None


def _has_no_weights(params: Params) -> bool:
    return params.update.objective != "clipped"


def _has_no_preference(params: Params) -> bool:
    return params.update.objective != "preference"


IDLE: dict[str, Callable[[Params], bool]] = {
    "advantages.estimator": _has_pairs,
    "advantages.min_absolute_advantage": _has_pairs,
    "advantages.pair_choice": lambda params: not _has_pairs(params),
    "advantages.pair_gap": lambda params: params.advantages.returns == "all_or_nothing",  # all gaps are 0 or 1
    "update.loss.importance": _has_no_weights,
    "update.loss.unit_weight": lambda params: _has_no_weights(params) or params.update.loss.importance == "token",
    "update.loss.clip_epsilon": _has_no_weights,
    "update.loss.clip_epsilon_high": _has_no_weights,
    "update.loss.lower_bound": _has_no_weights,
    "update.loss.constant_tokens": lambda params: params.update.loss.average != "constant",
    "update.loss.max_behaviour_weight": lambda params: not params.update.loss.correct_engine_mismatch,
    "update.loss.kl_gradient": lambda params: not params.update.loss.kl_coefficient,
    "update.preference.gamma": _has_no_preference,
    "update.preference.beta": _has_no_preference,
    "update.preference.reference": _has_no_preference,
    "update.critic.gamma": lambda params: params.update.critic is not None and params.update.critic.credit == "turn",
    "update.critic.turn_gamma": lambda p: p.update.critic is not None and p.update.critic.credit == "token",
}
"""Knobs that wait for another, as their descriptions say: whether they do nothing with the other knobs as they are."""


def test_every_knob_of_a_method_is_among_the_changes() -> None:
    params = params_of(ALL, METHODS["critic"])
    assert params is not None
    knobs = {**params.advantages.knobs("advantages."), **params.update.knobs("update.")}
    assert {knob for knob in knobs if knob.split(".")[1] not in SPEED} == set(CHANGES)


@pytest.mark.parametrize("method", METHODS)
def test_a_knob_changes_the_bytes_or_is_known_to_be_idle(method: str, digest_of: DigestOf) -> None:
    before = params_of(ALL, METHODS[method])
    assert before is not None
    for knob, change in changes_of(method).items():
        after = params_of(ALL, METHODS[method], change)
        if after is not None:
            idle = knob in IDLE and IDLE[knob](after)
            assert (digest_of(before) == digest_of(after)) == idle, knob


@pytest.mark.parametrize("method", METHODS)
def test_a_knob_on_top_of_another_changes_the_bytes_or_is_refused(method: str, digest_of: DigestOf) -> None:
    changes, ignored = changes_of(method), []
    for lower, upper in itertools.product([knob for knob in BELOW if knob in changes], changes.keys() - OPTIMIZER):
        if lower.startswith("advantages.") and not upper.startswith(("advantages.", "update.critic.")):
            continue
        below = params_of(ALL, METHODS[method], changes[lower])
        both = params_of(ALL, METHODS[method], changes[lower], changes[upper])
        if lower == upper or below is None or both is None or below == both or (upper in IDLE and IDLE[upper](both)):
            continue
        if digest_of(below) == digest_of(both):
            ignored.append(f"{upper} on top of {lower}")
    assert "; ".join(sorted(ignored)) == ""


def changes_of(method: str) -> dict[str, Knobs]:
    """Return the changes of a method's knobs: those of a critic for a method that has one, and none to what it has."""
    changes = {**CHANGES, **OTHER_CHANGES.get(method, {})}
    has_critic = "update.critic" in METHODS[method]
    return {
        knob: {knob: value}
        for knob, value in changes.items()
        if (has_critic or not knob.startswith("update.critic.")) and METHODS[method].get(knob) != value
    }


def params_of(*knobs: Knobs) -> Params | None:
    """Return the default parameters with these knobs set, one after the other; None where they are refused."""
    content: Knobs = {}
    for knob, value in (item for part in knobs for item in part.items()):
        *path, name = knob.split(".")
        section = content
        for part in path:
            section = section.setdefault(part, {})
        section[name] = deepcopy(value)
    try:
        return Params.model_validate(content)
    except ValidationError:
        return None


@pytest.fixture(scope="module")
def digest_of(tmp_path_factory: pytest.TempPathFactory) -> DigestOf:
    """Return a function from parameters to the digest of what an update with them leaves."""
    base, batches, digests = tiny_model(), dict[str, list[Rollout]](), dict[str, str]()
    layout = Layout(tmp_path_factory.mktemp("project"))
    write_rows(layout.rollouts("i001"), played(), ROLLOUTS)

    def digest(params: Params) -> str:
        inputs = AdvantageInputs.of(params)
        batch, whole = inputs.advantages.model_dump_json(), params.model_dump_json()
        if batch not in batches:
            batches[batch] = batch_of(layout, inputs)
        if whole not in digests:
            digests[whole] = updated(base, batches[batch], params)
        return digests[whole]

    return digest


def tiny_model() -> nn.Module:
    return tiny_qwen2(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        initializer_range=0.5,
    )


def batch_of(layout: Layout, inputs: AdvantageInputs) -> list[Rollout]:
    filter_advantages(StageContext(layout, inputs, "i001"))
    return read_rollouts(pq.read_table(layout.training_batch("i001")))


def played() -> list[dict[str, Any]]:
    """Return four rollouts of each of four tasks, some of which differ in their returns and some of which succeed."""
    random = np.random.default_rng(0)
    groups = {"a": [1.0, 0.5, 0.0, 0.25], "b": [1.0, 0.75, 1.0, 0.0], "c": [0.5] * 4, "d": [0.5, 0.25, 0.25, 0.5]}
    return [
        rollout(random, task, index, share) for task, shares in groups.items() for index, share in enumerate(shares)
    ]


def rollout(random: np.random.Generator, task: str, index: int, share: float) -> dict[str, Any]:
    turn_index = [-1, -1]
    for turn in range(1 + int(random.integers(1, 3))):
        turn_index += [turn] * int(random.integers(1, 4)) + [-1]
    sampled, turns = [turn >= 0 for turn in turn_index], max(turn_index) + 1
    tokens = {"token_ids": random.integers(0, VOCABULARY, len(turn_index)).tolist(), "policy_mask": sampled}
    logprobs = np.where(sampled, random.normal(-2.0, 0.5, len(sampled)), 0.0).tolist()
    told = {"failed": False, "code_blocks": 1, "api_calls": [], "failed_api_calls": []}
    rewards = random.normal(size=turns).tolist()
    progress = [*(share * random.uniform(size=turns - 1)).tolist(), share]
    more = {
        "turns": [told] * turns,
        "turn_rewards": rewards,
        "turn_progress": progress,
        "difficulty": 1,
        "staleness": 0,
    }
    return played_row(
        task, task, "train", share, index, turn_index=turn_index, engine_logprobs=logprobs, **tokens, **more
    )


def updated(base: nn.Module, rollouts: list[Rollout], params: Params) -> str:
    """Return the digest of policy and critic after an update, and of what it measured to end early."""
    policy, config = deepcopy(base), params.update
    learner = make_learner(policy, config)
    if config.critic is not None:
        learner.critic = make_critic(HIDDEN, config.critic, torch.device("cpu"), seed=0)
        learner.critic.updates = 3
    stats = update(learner, rollouts, config, temperature=1.0, seed=0, reference_view=lambda: nullcontext(base))
    weights = [*policy.parameters(), *(learner.critic.weights if learner.critic else [])]
    content = b"".join(weight.detach().numpy().tobytes() for weight in weights)
    return hashlib.sha256(content + repr([step.kl_stop for step in stats.steps]).encode()).hexdigest()
