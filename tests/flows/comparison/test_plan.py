"""Studies in YAML and on the command line."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.cli.app import main
from flows.comparison.plan import STUDIES, checked, chosen, read_plan, runs, with_controls
from flows.dag.checkout_lock import held
from flows.params_file import params_text
from tasks.core.config.params import ParamsError
from tasks.core.records.documents import dotted

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

    from flows.params_file import write_params

    run = list(runs(checked(CONTENT)))[-1]
    write_params(tmp_path / "written.yaml", run.params)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(run.command)[1:]) == 0
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
    from flows.params_file import write_params

    for run in runs(checked(read_plan(study) | {"seeds": [0]})):
        write_params(tmp_path / "params.yaml", run.params)


def test_a_kl_penalty_and_a_mean_over_tokens_are_over_all_rollouts_as_in_canopy() -> None:
    for run in runs(checked(read_plan("flips") | {"seeds": [0]})):
        loss = run.params.get("update", {}).get("loss", {})
        if loss.get("kl_coefficient") or loss.get("average") == "token":
            assert run.params["advantages"]["min_absolute_advantage"] == 0, run.method


Knobs = dict[str, Any]


def knobs_of(study: str) -> dict[str, Knobs]:
    """Return all knobs of every method, by its name, except knobs that follow from others."""
    knobs_by_method = {}
    for run in runs(checked(read_plan(study) | {"seeds": [0]})):
        content = yaml.safe_load(params_text(run.params))
        left_out = {"dag", "profiles"}
        knobs_by_method[run.method] = dotted({name: part for name, part in content.items() if name not in left_out})
    return knobs_by_method


def varied(study: str) -> dict[str, Knobs]:
    """Return the knobs in which the methods of a study differ, in the order of its methods."""
    methods = knobs_of(study)
    first = next(iter(methods.values()))
    differ = {name for knobs in methods.values() for name in knobs if knobs[name] != first.get(name)}
    return {method: {name: knobs[name] for name in sorted(differ)} for method, knobs in methods.items()}


def changed(knobs: Knobs, base: Knobs) -> set[str]:
    """Return the names of the knobs whose value is not that of `base`."""
    return {name for name, value in knobs.items() if value != base[name]}


GROUPS = "collection.rollouts_per_task"


def test_the_study_of_task_drawing_varies_it_alone() -> None:
    drawn = [{"collection.task_drawing": drawing} for drawing in ("weighted", "decks", "coverage")]
    assert list(varied("task_drawing").values()) == drawn


def test_every_flip_is_one_setting_and_all_of_them_at_once_are_canopy() -> None:
    """Methods have equal rollouts per iteration; those of larger steps differ in the learning rate alone."""
    methods = knobs_of("flips")
    larger = {name.removesuffix("_larger_steps"): methods.pop(name) for name in list(methods) if "_larger_" in name}
    assert list(larger) == ["one_update", "canopy"]
    for name, found in larger.items():
        assert changed(found, methods[name]) == {"update.learning_rate"}
    loop, canopy = methods["loop"], methods["canopy"]
    flips = {name: found for name, found in methods.items() if not name.startswith("canopy") and name != "loop"}
    assert len(flips) == 7
    together = {knob: value for found in flips.values() for knob, value in found.items() if value != loop[knob]}
    assert loop | together == canopy
    assert changed(methods["canopy_without_hardest"], canopy) == {"tasks.max_difficulty"}
    assert {found[GROUPS] * found["collection.tasks_per_iteration"] for found in methods.values()} == {192}


def test_the_controls_have_as_many_rollouts_and_optimizer_steps_as_canopy() -> None:
    methods = knobs_of("canopy_controls")
    of_flips = knobs_of("flips")["canopy_larger_steps"] | {"lineage.experiment": "canopy_controls"}
    assert methods["canopy_larger_steps"] == of_flips
    for name in ("canopy_larger_steps", "canopy_groups_of_8", "canopy_two_updates_doubled"):
        found = methods[name]
        rollouts = found[GROUPS] * found["collection.tasks_per_iteration"]
        assert (found["iterations"] * rollouts, found["update.minibatch"] or rollouts) == (24 * 192, 192)
    for name, knob in (("canopy_quarter", GROUPS), ("canopy_two_updates", "update.minibatch")):
        assert changed(methods[name], methods["canopy_larger_steps"]) == {knob}


@pytest.mark.parametrize("study", sorted(path.stem for path in STUDIES.glob("*.yaml")))
def test_no_two_methods_of_a_study_are_the_same(study: str) -> None:
    found = [sorted(map(repr, knobs.items())) for knobs in knobs_of(study).values()]
    assert all(one not in found[:place] for place, one in enumerate(found))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["methods", "--methods", "loop,nonesuch"], 2, "--methods: nonesuch: not in the study methods"),
        (["--methods", "loop,nonesuch"], 2, "nonesuch"),
        (["methods", "--against", "nonesuch"], 1, "against: nonesuch is none of the methods"),
        (["methods", "--set", "update.epoch=1"], 1, "params.yaml: update.epoch: "),
        ([], 2, "name a study, or --methods"),
    ],
)
def test_arguments_that_make_no_study_are_one_error(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *arguments, "--seeds", "0", "--report"]) == code
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text, message",
    [
        ("methods: [loop]", r"odd\.yaml: methods: Input should be a valid dictionary"),
        ("methods: {loop: }\nsettings: update.epochs=1", r"odd\.yaml: settings: Input should be a valid tuple"),
        ("methods: {loop: }\nsettings:", r"odd\.yaml: settings: Input should be a valid tuple"),
        ("methods: {loop: }\nagainst: grpo", r"odd\.yaml: \(top level\): .*against: grpo is none of the methods loop"),
        ("methods: {loop: {setings: []}}", r"odd\.yaml: methods\.loop\.setings: Extra inputs"),
        ("methods: {loop: }\norderings: [[loop]]", r"orderings: \['loop'\]: expected two or more of loop, nft"),
        ("methods: {loop: }\norderings: [[loop, grpo]]", r"orderings: \['loop', 'grpo'\]: expected two or more of"),
        ("methods: {loop: }\norderings: [[loop, nft, loop]]", r"orderings: \['loop', 'nft', 'loop'\]: expected"),
        ("{", r"odd\.yaml: not valid YAML"),
        ("\udcff", r"odd\.yaml: not valid YAML: 'utf-8' codec"),
        ("loop", r"odd\.yaml: expected a mapping, found str"),
    ],
)
@pytest.mark.parametrize("chosen", [[], ["--methods", "loop"]])
def test_an_invalid_file_is_one_message_that_names_it(
    text: str, message: str, chosen: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.yaml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert main(["compare", str(path), "--report", *chosen]) == 1
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize("action", [[], ["--remove"]])
def test_a_running_study_is_left_alone(
    action: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lock = tmp_path / ".loopline/studies/loop.lock"
    with held(lock, "loopline compare", "elsewhere"):
        assert main(["compare", "--methods", "loop", "--seeds", "0", *action]) == 1
    assert re.search(r"loopline compare \(process \d+\) works on the study loop; wait", capsys.readouterr().err)
    assert list(lock.parent.iterdir()) == [lock]


def test_a_folder_is_no_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.yaml").mkdir()
    assert main(["compare", str(tmp_path / "odd.yaml"), "--report"]) == 1
    assert "odd.yaml: cannot be read: Is a directory" in capsys.readouterr().err


def test_a_method_named_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--methods", "loop,grpo,loop", "--report"]) == 2
    assert "Invalid value for --methods: loop: named twice" in capsys.readouterr().err


def test_claims_are_of_the_methods_that_were_chosen() -> None:
    study = checked(read_plan("methods")).model_dump()
    found = checked(chosen(study, ["rft", "loop", "rloo", "loop_std"]))
    assert found.orderings == (("loop", "rloo"), ("loop", "loop_std"), ("loop", "rft", "nft"))
    assert checked(chosen(study, ["rloo", "grpo"])).orderings == (("grpo", "rloo"),)


def test_a_study_that_names_none_compares_with_its_first_method() -> None:
    assert checked({"name": "a", "methods": {"grpo": "grpo", "loop": None}}).against == "grpo"


@pytest.mark.parametrize(
    ("base", "imitation"),
    [("default", {"policy.source=recipe:imitation"}), ("smollm2", {"policy.warm_start.imperfect_steps=0"})],
)
def test_controls_are_rows_that_the_first_method_is_claimed_to_beat(
    base: str, imitation: set[str], tmp_path: Path
) -> None:
    from flows.params_file import write_params

    plan = checked({"name": "a", "base": [base], "methods": {"loop": None, "ei": "ei"}})
    found = checked(with_controls(plan.model_dump()))
    assert imitation < set(found.methods["imitation"].settings) and not found.methods["imitation"].trained
    assert found.orderings[0] == ("loop", "imitation") and ("loop", "random_rewards") in found.orderings
    assert ("imitation_of_successes" in found.methods) == (base == "default") and found.against == "loop"
    for run in runs(found):
        write_params(tmp_path / "params.yaml", run.params)
