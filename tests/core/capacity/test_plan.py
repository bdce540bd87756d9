"""Plans compared with runs: the embedded default (measured here) and the paper's stated cost."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from flows.params_file import params_of
from tasks.core.capacity.flops import ModelShape, forward_flops, parameters
from tasks.core.capacity.hardware import HARDWARE
from tasks.core.capacity.known_models import KNOWN_MODELS, model_config
from tasks.core.capacity.plan import Plan, make_plan, trained_sequences
from tasks.core.capacity.workload import api_cost
from tasks.core.chat_servers.settings import Traffic
from tasks.core.config.world_settings import MeanEpisode
from tasks.core.records.files import ArtifactError
from tasks.core.worlds.pocketworld.kind import PocketworldConfig

ROOT = Path(__file__).parents[3]
MEASURED: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "embedded_run.json").read_text())
TIMES = 2.5
"""Factor by which a prediction on a shared CPU may be wrong."""
QWEN_32B = KNOWN_MODELS["Qwen/Qwen2.5-32B-Instruct"].config
PAPER_HOURS = 42


@pytest.fixture(scope="module")
def embedded() -> Plan:
    """Plan the run whose figures are in golden/, with the episodes that it had."""
    seen = MEASURED["mean_of_every_sixth"]
    turns, sampled = seen["turns_per_rollout"], seen["sampled_per_rollout"]
    observed = seen["tokens_per_rollout"] - sampled - seen["prompt_tokens"]
    turn_s = PocketworldConfig.mean_episode.turn_s
    episodes = MeanEpisode(seen["prompt_tokens"], turns, sampled / turns, observed / turns, turn_s, "measured")
    params = params_of("default", ["iterations=90"])
    return make_plan(params, model_config(params.policy.source, ROOT), HARDWARE["cpu"], 1, episodes)


def test_the_time_of_the_embedded_run(embedded: Plan) -> None:
    """A third of its rollouts trained, and played in half the time that the worlds' share of both cores allows."""
    seen = MEASURED["mean_of_iterations"]
    assert 0.2 * seen["collect_wall_s"] < embedded.rollouts_s["collection"] < seen["collect_wall_s"]
    trained = seen["kept_rollouts"] * MEASURED["mean_of_every_sixth"]["tokens_per_kept_rollout"]
    update_s = embedded.update_s * trained / (embedded.load.collected * embedded.load.episodes.tokens)
    assert seen["update_s"] / TIMES < update_s < seen["update_s"] * TIMES


def update_flops(*settings: str, profile: str = "default", mean: MeanEpisode | None = None) -> float:
    params = params_of(profile, [*settings])
    return make_plan(params, model_config(params.policy.source, ROOT), HARDWARE["h100"], 1, mean).update_flops


def test_a_preference_against_the_base_reads_it_as_a_kl_term_does() -> None:
    of_the_base = update_flops("update.loss.kl_coefficient=0.1") - update_flops()
    preferring = update_flops("update.preference.reference=base", profile="default dmpo")
    assert preferring - update_flops(profile="default dmpo") == pytest.approx(of_the_base) and of_the_base > 0


def test_dropped_thoughts_cost_a_sequence_for_each_turn_and_a_pass_for_their_values() -> None:
    mean = MeanEpisode(100, 3, 20, 10, 0.1, "by hand")
    assert trained_sequences(mean, dropped=False) == [190]
    assert trained_sequences(mean, dropped=True) == [130, 160, 190]
    dropped, once = "policy.chat.earlier_thoughts=as_template", "update.epochs=1"
    in_one_pass, in_several, kept = (
        update_flops(f"update.tokens_per_pack={pack}", once, *more, profile="paper", mean=mean)
        for pack, more in ((480, [dropped]), (200, [dropped]), (480, []))
    )
    shape, lora = ModelShape.of_config(QWEN_32B), params_of("paper").policy.lora
    forward = 240 * forward_flops(shape, [130, 160, 190], 60, lora)
    assert in_several - in_one_pass == pytest.approx(forward, rel=1e-6) and kept < in_one_pass / 2


def test_rollouts_take_as_long_as_reading_and_computing_or_as_their_worlds() -> None:
    """One H100 of Qwen2.5-7B in bfloat16: 240 rollouts, 100 at once, 100 tokens each, of which 40 are sampled."""
    config = KNOWN_MODELS["Qwen/Qwen2.5-7B-Instruct"].config
    settings = ["collection.tasks_per_iteration=40", "collection.rollouts_per_task=6", "policy.trained=full"]
    params = params_of("gpu_80gb", [*settings, "collection.max_concurrent_episodes=100"])
    shape, card = ModelShape.of_config(config), HARDWARE["h100"]
    plan = make_plan(params, config, card, 1, MeanEpisode(50, 2, 20, 5, 0.0, "by hand"))
    weights, cache = 2 * parameters(shape), 100 * 0.5 * 100 * plan.engines.memory.cache_per_token
    reading = 2.4 * 40 * (weights + cache) / card.bandwidth
    computing = 240 * forward_flops(shape, [100], 40) / card.flops
    assert plan.rollouts_s["collection"] == pytest.approx(reading + computing)
    slow = make_plan(params, config, card, 1, MeanEpisode(50, 2, 20, 5, 30.0, "by hand"))
    assert slow.rollouts_s["collection"] == 240 * 2 * 30 / 2


def test_the_disk_of_the_embedded_run(embedded: Plan) -> None:
    seen, disk = MEASURED["bytes"], embedded.disk
    assert disk["base model"] == pytest.approx(seen["policy"], rel=0.1)
    assert disk["report"] == pytest.approx(seen["report"], rel=0.3)
    assert disk["checkpoints"] + disk["rollouts"] == pytest.approx(
        seen["iterations"] + seen["evaluations"] + seen["scores"], rel=0.3
    )


def test_the_papers_two_nodes_are_enough_and_its_hours_are_a_bound() -> None:
    """The paper took 42 h on 16 H100 (for 90 or 200 iterations, which it does not state)."""
    plan = make_plan(params_of("paper"), QWEN_32B, HARDWARE["h100"], 16)
    assert plan.warnings() == [] and plan.disk["base model"] == 2 * parameters(ModelShape.of_config(QWEN_32B))
    assert plan.flops / (16 * HARDWARE["h100"].flops) / 3600 < plan.seconds / 3600 < PAPER_HOURS


def test_parts_that_do_not_fit_name_the_knob_to_turn() -> None:
    whole = make_plan(params_of("paper", ["update.activation_checkpointing=false"]), QWEN_32B, HARDWARE["h100"], 16)
    assert "activations takes most of it" in whole.warnings()[0]
    assert "update.activation_checkpointing: true" in whole.warnings()[0]
    alone = make_plan(params_of("paper", ["policy.dtype=float32"]), QWEN_32B, HARDWARE["h100"], 1)
    assert any("more ranks" in warning for warning in alone.warnings())
    assert any("leave no room for an episode" in warning for warning in alone.warnings())


def test_twice_the_devices_take_less_time_and_more_tokens_take_more() -> None:
    one, two = (make_plan(params_of("gpu_80gb"), QWEN_32B, HARDWARE["h200"], gpus) for gpus in (4, 8))
    assert two.update_s == pytest.approx(one.update_s / 2)
    assert two.seconds < one.seconds
    more = make_plan(params_of("gpu_80gb", ["iterations=120"]), QWEN_32B, HARDWARE["h200"], 4)
    assert more.seconds > one.seconds and more.disk["checkpoints"] > one.disk["checkpoints"]


def test_an_unknown_model_is_one_error() -> None:
    with pytest.raises(ArtifactError, match="the sizes of some/model are unknown"):
        model_config("some/model", ROOT)


def test_the_cost_of_an_api_by_hand(embedded: Plan) -> None:
    """Two episodes of 2 turns: prompts of 10 and 10 + 5 + 3, answers of 5."""
    load = dataclasses.replace(
        embedded.load,
        episodes=MeanEpisode(10, 2, 5, 3, 0, ""),
        iterations=0,
        collections=0,
        evaluations=0,
        scored=2,
    )
    found = api_cost(load, Traffic(prompt_price=1e6, answer_price=2e6, requests_per_minute=2))
    assert (found.requests, found.prompt_tokens, found.answer_tokens) == (4, 2 * (10 + 18), 20)
    assert (found.usd, found.minutes) == (56 + 40, 2)
