"""Studies as YAML and as words on the command line."""

from itertools import product
from pathlib import Path

import pytest

from flows.comparison.plan import STUDIES, checked, read_plan, runs
from flows.configure import main as configure
from tasks.core.config.params import ParamsError

CONTENT = {
    "name": "two",
    "base": ["default", "drill"],
    "settings": ["update.epochs=1"],
    "methods": {"loop": None, "grpo": "grpo", "fast": {"profiles": ["grpo"], "settings": ["update.learning_rate=0.5"]}},
    "seeds": [0, 3],
    "against": "loop",
}


def test_every_method_with_one_seed_comes_before_the_next_seed() -> None:
    found = [(run.method, run.seed, run.experiment) for run in runs(checked(CONTENT))]
    assert found == [(m, s, f"two-{m}-s{s}") for s in (0, 3) for m in ("loop", "grpo", "fast")]


def test_a_method_may_have_the_first_seeds_alone() -> None:
    for count, expected in ((1, [("loop", 0), ("grpo", 0), ("loop", 3)]), (9, [*product(("loop", "grpo"), (0, 3))])):
        methods = {"loop": None, "grpo": {"profiles": ["grpo"], "seeds": count}}
        found = [(run.method, run.seed) for run in runs(checked(CONTENT | {"methods": methods}))]
        assert sorted(found) == sorted(expected)


def test_the_command_of_a_run_writes_its_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    from flows.configure import write_params

    run = list(runs(checked(CONTENT)))[-1]
    write_params(tmp_path / "written.yaml", run.params)
    monkeypatch.chdir(tmp_path)
    assert configure(shlex.split(run.command)[3:]) == 0
    assert (tmp_path / "params.yaml").read_bytes() == (tmp_path / "written.yaml").read_bytes()
    assert run.params["update"]["learning_rate"] == 0.5 and run.params["seed"] == 3


@pytest.mark.parametrize(
    "change, message",
    [
        ({"against": "rloo"}, "against: rloo is none of the methods loop, grpo, fast"),
        ({"seeds": [1, 1]}, "seeds: one is named twice"),
        ({"methods": {}}, "methods"),
        ({"name": "a b"}, "name"),
        ({"methods": {"loop": None, "LOOP, no KL": None}}, "methods.LOOP, no KL"),
        ({"metods": {}}, "metods"),
        ({"methods": {"loop": {"seeds": 0}}}, r"methods\.loop\.seeds: Input should be greater than or equal to 1"),
    ],
)
def test_a_broken_study_is_one_error_that_names_the_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        checked(CONTENT | change)


def test_an_unknown_study_names_those_that_exist() -> None:
    with pytest.raises(ParamsError, match="no such study; those with a name are"):
        read_plan("nonesuch")


@pytest.mark.parametrize("study", sorted(path.stem for path in STUDIES.glob("*.yaml")))
def test_the_studies_of_the_house_resolve_to_valid_parameters(study: str, tmp_path: Path) -> None:
    from flows.configure import write_params

    for run in runs(checked(read_plan(study) | {"seeds": [0]})):
        write_params(tmp_path / "params.yaml", run.params)


def test_a_kl_penalty_and_a_mean_over_tokens_are_over_all_rollouts_as_in_canopy() -> None:
    for run in runs(checked(read_plan("flips") | {"seeds": [0]})):
        loss = run.params.get("update", {}).get("loss", {})
        if loss.get("kl_coefficient") or loss.get("average") == "token":
            assert run.params["advantages"]["min_absolute_advantage"] == 0, run.method
