"""Methods whose knobs do not go together are refused; no knob that is set does nothing."""

import ast
from pathlib import Path

import pytest

from flows.params_file import params_of
from tasks.core.config.params import ParamsError
from tasks.core.records.documents import dotted

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("critic", ["ppo", "ppo_bilevel", "starpo_ppo", "starpo_s_ppo"])
@pytest.mark.parametrize("below", ["starpo_s", "loop_std", "reinforce_pp"])
def test_a_critic_sees_returns_whatever_method_it_goes_on_top_of(below: str, critic: str) -> None:
    advantages = params_of(f"sokoban {below} {critic}").advantages
    assert (advantages.divide_by_std, advantages.normalise_over_batch) == (None, False)
    assert advantages.min_absolute_advantage == 0


def test_rloo_is_loop_per_trajectory_with_one_on_policy_step() -> None:
    loop, rloo = (params_of(f"default {name}") for name in ("loop_per_trajectory", "rloo"))
    assert rloo.advantages == loop.advantages and rloo.collection == loop.collection
    assert rloo.update == loop.update.model_copy(update={"minibatch": None, "epochs": 1})


def test_the_rooms_know_no_method_by_its_name() -> None:
    """Only the profiles do: a method is data."""
    names = {path.stem for path in (ROOT / "flows" / "profiles" / "methods").glob("*.yaml")} | {"loop"}
    rooms = [
        ROOT / "tasks" / room for room in ("core/advantages", "core/learner", "core/rollouts", "filter_advantages")
    ]
    files = [path for room in rooms for path in room.rglob("*.py")]
    files += [ROOT / "tasks" / name for name in ("collect_rollouts.py", "update_policy.py")]
    assert len(names) > 20 and len(files) > 25
    for path in files:
        texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not texts & names, path


@pytest.mark.parametrize("method", ["grpo", "canopy", "reinforce_pp", "starpo_grpo", "starpo_ppo"])
def test_a_methods_kl_penalty_is_over_all_rollouts(method: str) -> None:
    params = params_of(f"smoke {method}")
    assert params.update.loss.kl_coefficient > 0 and params.advantages.min_absolute_advantage == 0


@pytest.mark.parametrize(("vanilla", "stabilised"), [("starpo_grpo", "starpo_s"), ("starpo_ppo", "starpo_s_ppo")])
def test_starpo_s_is_starpo_with_its_three_stabilisers(vanilla: str, stabilised: str) -> None:
    before, after = (
        dotted(params_of(f"sokoban {name}").model_dump(mode="json", include={"advantages", "update"}))
        for name in (vanilla, stabilised)
    )
    assert before.keys() == after.keys()
    assert {knob: (value, after[knob]) for knob, value in before.items() if value != after[knob]} == {
        "advantages.top_variance_share": (1.0, 0.25),
        "update.loss.clip_epsilon_high": (None, 0.28),
        "update.loss.kl_coefficient": (0.001, 0.0),
    }


@pytest.mark.parametrize(("group", "critic"), [("starpo_grpo", "starpo_ppo"), ("starpo_s", "starpo_s_ppo")])
def test_a_critic_takes_the_groups_place_in_the_same_loss(group: str, critic: str) -> None:
    without, found = params_of(f"sokoban {group}"), params_of(f"sokoban {critic}")
    assert without.update.critic is None and without.advantages.divide_by_std == "sample"
    given = found.update.critic
    assert given is not None and given.whiten_advantages
    assert (given.credit, given.gamma, given.gae_lambda, given.warmup_iterations) == ("token", 1.0, 1.0, 0)
    assert found.update.model_copy(update={"critic": None}) == without.update
    assert found.advantages.top_variance_share == without.advantages.top_variance_share


def test_bi_level_credit_goes_on_top_of_starpo() -> None:
    critic = params_of("sokoban starpo_s_ppo ppo_bilevel").update.critic
    assert critic is not None
    assert (critic.credit, critic.turn_gamma, critic.whiten_advantages) == ("bilevel", 0.95, True)


@pytest.mark.parametrize("method", ["", "loop_per_turn", "loop_turn_credit", "dmpo", "starpo_s_ppo"])
@pytest.mark.parametrize("base", ["default", "paper"])
def test_the_filter_by_mass_goes_on_top_of_loop_and_others(base: str, method: str) -> None:
    below, found = (params_of(f"{base} {method} {name}").advantages for name in ("", "snr_filter"))
    assert found == below.model_copy(update={"top_variance_share": 0.9, "variance_share_of": "mass"})
    assert found.filters_groups and found.smallest_group == 2


@pytest.mark.parametrize(
    ("profiles", "settings", "message"),
    [
        ("smoke ppo", ["advantages.divide_by_std=sample"], r"critic .* set advantages\.divide_by_std: null"),
        ("smoke ppo", ["advantages.normalise_over_batch=true"], r"set advantages\.normalise_over_batch: false"),
        ("smoke ppo", ["advantages.min_absolute_advantage=0.01"], r"set advantages\.min_absolute_advantage: 0\.0"),
        ("smoke", ["collection.temperatures=[0.5,1.0]"], r"collection\.temperatures: update\.objective: clipped"),
        ("smoke", ["collection.demonstrations=true"], r"collection\.demonstrations: .* objective to supervised"),
        ("smoke ei", ["update.loss.correct_engine_mismatch=true"], r"correct_engine_mismatch .* with supervised set"),
        ("smoke dmpo", ["update.loss.correct_engine_mismatch=true"], r"correct_engine_mismatch .* with preference set"),
        (
            "smoke dmpo",
            ["update.critic={}", "advantages.estimator=episode_return", "advantages.min_absolute_advantage=0.0"],
            r"objective: preference .* set critic: null",
        ),
        ("smoke dmpo", ["update.loss.average=token"], r"objective: preference .* set loss\.average: rollout"),
        ("smoke dmpo", ["update.loss.average=constant"], r"constant would have it; set loss\.average: rollout"),
        (
            "smoke ppo",
            ["update.critic.rewards=turns", "advantages.returns=all_or_nothing"],
            r"returns: all_or_nothing is not what update\.critic\.rewards: turns learns.* set returns to share",
        ),
        ("smoke ei", ["advantages.returns=all_or_nothing"], r"what estimator: success takes already; set it to share"),
        ("smoke dpo_mcts", ["advantages.top_variance_share=0.5"], r"set advantages\.top_variance_share: 1\.0"),
        ("smoke dpo_mcts snr_filter", [], r"set advantages\.top_variance_share: 1\.0 and variance_share_of: groups"),
        ("smoke dpo_mcts", ["advantages.variance_share_of=mass"], r"a tree is not a group of rollouts"),
        ("smoke ppo random_rewards", [], r"learns the returns that were earned; set advantages\.returns: share"),
        ("smoke loop_turn_credit random_rewards", [], r"returns: shuffled does not fit progress by turn"),
        ("smoke dpo_mcts random_rewards", [], r"shuffled needs rollouts of a task to compare; unset collection\.tree"),
        ("smoke loop_turn_credit_centred", ["collection.turn_progress=false"], r"_centred needs collection\.turn"),
        *(
            ("smoke", [f"lineage.{name}"], rf"lineage\.{name.partition('=')[0]}: .*is no name for MLflow")
            for name in ("experiment=''", *(f"registered_model={v}" for v in ("a/b", "o'brien", "' '", "..")))
        ),
        ("smoke", ["advantages.all_or_nothing=true"], r"`all_or_nothing` is now called `returns`"),
        ("smoke", ["machines.ray.cache_gib=9"], r"machines\.ray: .*`cache_gib` is now called `machines.cache_gib`"),
        ("smoke loop_turn_credit loop_std", [], r"divide_by_std .* with estimator: turn_progress set it to null"),
    ],
)
def test_what_would_do_nothing_or_harm_is_refused(profiles: str, settings: list[str], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        params_of(profiles, settings)
