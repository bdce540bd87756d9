"""The time of a run besides rollouts and updates, by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.params_file import params_of
from tasks.core.capacity.flops import ModelShape, adapter_parameters, parameters
from tasks.core.capacity.hardware import HARDWARE
from tasks.core.capacity.known_models import KNOWN_MODELS, model_config
from tasks.core.capacity.overheads import overheads
from tasks.core.capacity.plan import make_plan
from tasks.core.capacity.workload import workload
from tasks.core.worlds.pocketworld.kind import PocketworldConfig
from tests.benchmarks.calibration import MeasuredRun, calibrated

QWEN_32B = ModelShape.of_config(KNOWN_MODELS["Qwen/Qwen2.5-32B-Instruct"].config)
HAND = replace(HARDWARE["h100"], disk=1e9, hashing=0.5e9, start_s=60.0, stage_s=2.0)


def test_the_papers_by_hand() -> None:
    """90 iterations, evaluated 19 times, in turns on the same devices: 91 starts of servers, 90 of the learner."""
    params = params_of("paper")
    base, adapter = 2 * parameters(QWEN_32B), 4 * adapter_parameters(QWEN_32B, params.policy.lora)
    found = overheads(workload(params), params, QWEN_32B, HAND, 10e9, releases_device=True)
    assert found.stages == 2.0 * (13 + 3 * 90 + 19)
    assert found.engine_starts == pytest.approx(91 * (60 + base / 1e9))
    assert found.learner_loading == pytest.approx(90 * base / 1e9)
    assert found.delivery == pytest.approx((90 + 19 + 4) * (adapter / 1e9 + 1))
    assert found.hashing == pytest.approx((base + 20e9) / 0.5e9)
    assert (found.copies, found.total) == (10.0, pytest.approx(sum(vars(found).values()) - 10))


def test_a_training_budget_of_its_own_doubles_what_scoring_plays() -> None:
    """The paper's budget: two policies on two splits, at 50 turns and again at 40."""
    once, twice = params_of("paper"), params_of("paper", ["scoring.at_training_budget=true"])
    assert workload(twice).scored == 2 * workload(once).scored == 2 * 2 * 5 * (168 + 417)
    found = [overheads(workload(p), p, QWEN_32B, HAND, 0, releases_device=True).delivery for p in (once, twice)]
    assert found[1] == pytest.approx(found[0] * (90 + 19 + 8) / (90 + 19 + 4))
    same = params_of("paper", ["scoring.at_training_budget=true", "scoring.limits.max_turns=40"])
    assert workload(same).scored == workload(once).scored


def test_an_engine_that_stays_loaded_starts_once_and_external_servers_never() -> None:
    params = params_of("paper")
    load, base = workload(params), 2 * parameters(QWEN_32B)
    beside = overheads(load, params, QWEN_32B, HAND, 0, releases_device=False)
    assert beside.engine_starts == pytest.approx(60 + base / 1e9)
    theirs = params_of("paper", ["engine.vllm.urls=[http://a:1]"])
    assert overheads(load, theirs, QWEN_32B, HAND, 0, releases_device=True).engine_starts == 0
    one = params_of("default")
    assert overheads(workload(one), one, QWEN_32B, HAND, 0, releases_device=True).learner_loading == 0


def test_a_plan_with_the_measured_rates_takes_as_long_as_the_run() -> None:
    params = params_of("smoke")
    config = model_config(params.policy.source, Path(__file__).parents[3])
    plan = make_plan(params, config, HARDWARE["cpu"], 1)
    seen = MeasuredRun(collecting_s=3 * plan.collecting.total, updating_s=plan.updating_s / 2, stage_s=0.25, start_s=7)
    usual = PocketworldConfig.mean_episode
    slow = replace(usual, turn_s=3 * usual.turn_s)
    again = make_plan(params, config, calibrated(HARDWARE["cpu"], plan, seen), 1, slow)
    assert again.collecting.total == pytest.approx(seen.collecting_s)
    assert again.updating_s == pytest.approx(seen.updating_s)
    assert again.overheads.stages == 7 + 0.25 * (13 + 3 * 2 + 2)
