"""Methods whose knobs do not go together are refused; no knob that is set does nothing."""

import pytest

from flows.configure import params_of
from tasks.core.config.params import ParamsError


@pytest.mark.parametrize("critic", ["ppo", "ppo_bilevel"])
@pytest.mark.parametrize("below", ["starpo_s", "loop_std", "reinforce_pp"])
def test_a_critic_sees_returns_whatever_method_it_goes_on_top_of(below: str, critic: str) -> None:
    advantages = params_of(f"sokoban {below} {critic}").advantages
    assert (advantages.divide_by_std, advantages.normalise_over_batch) == (None, False)
    assert advantages.min_absolute_advantage == 0


@pytest.mark.parametrize("method", ["grpo", "canopy", "reinforce_pp"])
def test_a_methods_kl_penalty_is_over_all_rollouts(method: str) -> None:
    params = params_of(f"smoke {method}")
    assert params.update.loss.kl_coefficient > 0 and params.advantages.min_absolute_advantage == 0


@pytest.mark.parametrize(
    ("profiles", "settings", "message"),
    [
        ("smoke ppo", ["advantages.divide_by_std=sample"], r"critic .* set advantages\.divide_by_std: null"),
        ("smoke ppo", ["advantages.normalise_over_batch=true"], r"set advantages\.normalise_over_batch: false"),
        ("smoke ppo", ["advantages.min_absolute_advantage=0.01"], r"set advantages\.min_absolute_advantage: 0\.0"),
        ("smoke", ["collection.temperatures=[0.5,1.0]"], r"collection\.temperatures: update\.objective: clipped takes"),
        (
            "smoke",
            ["collection.demonstrations=true"],
            r"collection\.demonstrations: .* objective to supervised",
        ),
        ("smoke ei", ["update.loss.correct_engine_mismatch=true"], r"correct_engine_mismatch .* with supervised set"),
        ("smoke dmpo", ["update.loss.correct_engine_mismatch=true"], r"correct_engine_mismatch .* with preference set"),
        (
            "smoke dmpo",
            ["update.critic={}", "advantages.estimator=episode_return", "advantages.min_absolute_advantage=0.0"],
            r"objective: preference .* set critic: null",
        ),
        ("smoke dmpo", ["update.loss.average=token"], r"objective: preference .* set loss\.average: rollout"),
        ("smoke dpo_mcts", ["advantages.top_variance_share=0.5"], r"set advantages\.top_variance_share: 1\.0"),
        ("smoke dpo_mcts", ["monitor.action=tighten_filter"], r"monitor\.action: tighten_filter would do nothing"),
        (
            "smoke starpo_s",
            ["monitor.action=tighten_filter"],
            r"would do nothing: set monitor\.variance_share \(0\.5\) below advantages\.top_variance_share \(0\.25\)",
        ),
        ("smoke", ["monitor.action=tighten_filter", "monitor.variance_share=1.0"], "tighten_filter would do nothing"),
        ("smoke loop_turn_credit loop_std", [], r"divide_by_std .* with estimator: turn_progress set it to null"),
    ],
)
def test_what_would_do_nothing_or_harm_is_refused(profiles: str, settings: list[str], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        params_of(profiles, settings)
