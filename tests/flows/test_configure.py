from pathlib import Path

import pytest
import yaml

from flows.configure import PROFILES, main, merged, parse_assignment, profile_content, profile_names
from tasks.core.config.params import ParamsError, load_params

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_params_yaml_in_git_is_the_default_profile(project: Path) -> None:
    assert main(["default"]) == 0
    assert (project / "params.yaml").read_text() == (ROOT / "params.yaml").read_text()


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_is_valid_and_changes_what_it_says(name: str, project: Path) -> None:
    assert main([name]) == 0
    params = load_params(project / "params.yaml").model_dump(mode="json")
    overlay = profile_content(name)
    assert merged(params, overlay) == params
    assert name == "default" or overlay


def test_method_profiles_differ_in_the_method_alone(project: Path) -> None:
    for name in ("loop_per_turn", "loop_per_trajectory", "loop_std", "rloo", "grpo", "grpo_no_kl", "ei", "starpo_s"):
        default, overlay = profile_content("default"), yaml.safe_load((PROFILES / f"{name}.yaml").read_text())
        assert set(overlay) <= {"advantages", "update", "lineage"}, name
        changed = profile_content(name)
        assert (changed.get("advantages"), changed["update"]) != (None, default["update"])


def test_refresh_brings_the_maps_in_step(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["default"])
    path = project / "params.yaml"
    path.write_text(path.read_text().replace("iterations: 16", "iterations: 3"))
    with pytest.raises(ParamsError, match=r"flows\.configure --refresh"):
        load_params(path)
    assert main(["--refresh", "--set", "evaluation.every=2"]) == 0
    params = load_params(path)
    assert [before.policy for before in params.previous.values()] == ["i000", "i001", "i002"]
    assert params.evaluated == ["i000", "i002", "i003"]


def test_staleness_is_a_property_of_the_dag(project: Path) -> None:
    assert main(["default", "--set", "iterations=4", "--set", "collection.staleness=1"]) == 0
    previous = load_params(project / "params.yaml").previous
    assert [before.policy for before in previous.values()] == ["i000", "i001", "i002", "i003"]
    assert [before.behaviour for before in previous.values()] == ["i000", "i000", "i001", "i002"]
    assert [before.staleness for before in previous.values()] == [0, 1, 1, 1]
    path = project / "params.yaml"
    path.write_text(path.read_text().replace("staleness: 1", "staleness: 2"))
    with pytest.raises(ParamsError, match=r"iterations and collection\.staleness; run `python -m flows\.configure"):
        load_params(path)


def test_set_changes_one_knob_and_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["default"])
    capsys.readouterr()
    assert main(["default", "--set", "iterations=4", "--set", "update.loss.importance=turn"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["iterations: 16 -> 4", "update.loss.importance: token -> turn"]
    assert load_params(project / "params.yaml").iterations == 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nope"], 2, "unknown profile 'nope'; the profiles are: default, "),
        (["default", "--set", "update.epoch=2"], 1, "update.epoch: Extra inputs are not permitted"),
        (["default", "--set", "iterations=-1"], 1, "iterations: Input should be greater than or equal to 0"),
        (["default", "--set", "collection.rollouts_per_task=1"], 1, "collection.rollouts_per_task"),
        (["default", "--set", "collection.staleness=-1"], 1, "collection.staleness: Input should be"),
        (["default", "--set", "evaluation=3"], 1, "evaluation: Input should be"),
        (["default", "--set", "iterations"], 1, "expected NAME=VALUE"),
        (["default", "--set", "seed=[1"], 1, "not valid YAML"),
        (["--refresh"], 1, "missing; run `python -m flows.configure default`"),
    ],
)
def test_bad_input_is_one_message_and_writes_nothing(
    arguments: list[str], code: int, message: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    printed = capsys.readouterr().err
    assert message in printed
    assert "Traceback" not in printed
    assert list(project.iterdir()) == []


def test_values_of_set_are_yaml() -> None:
    assert parse_assignment("a.b=[1, x]") == {"a": {"b": [1, "x"]}}
    assert parse_assignment("policy.revision=null") == {"policy": {"revision": None}}
    assert parse_assignment("lineage.experiment=a=b") == {"lineage": {"experiment": "a=b"}}
