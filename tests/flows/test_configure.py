from pathlib import Path

import pytest
import yaml

from flows.cli.app import main
from flows.params_file import params_of, parse_assignment, text_of
from flows.profile_stack import METHOD_SECTIONS, METHODS, merged, method_names, profile_names, read_mapping, stacked
from tasks.core.config.descriptions import LONGEST_COMMENT, knob_comments
from tasks.core.config.params import ParamsError, load_params
from tasks.core.config.yaml_text import parse_yaml
from tasks.core.records.documents import dotted

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_params_yaml_in_git_is_the_default_profile(project: Path) -> None:
    assert main(["configure", "default"]) == 0
    assert (project / "params.yaml").read_text() == (ROOT / "params.yaml").read_text()


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_is_valid_and_changes_its_declared_knobs(name: str, project: Path) -> None:
    assert main(["configure", name]) == 0
    params = load_params(project / "params.yaml").model_dump(mode="json")
    overlay = stacked([name])
    assert merged(params, overlay) == params
    assert name == "default" or overlay


_UNSET = object()
BASES = [name for name in profile_names() if name not in method_names()]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("method", method_names())
def test_every_method_stacks_on_every_base_and_changes_its_own_knobs_alone(base: str, method: str) -> None:
    overlay = dotted(read_mapping(METHODS / f"{method}.yaml"))
    assert {knob.partition(".")[0] for knob in overlay} <= set(METHOD_SECTIONS)
    below, found = (dotted(params_of(names).model_dump(mode="json")) for names in (base, f"{base} {method}"))
    changed = {knob: value for knob, value in found.items() if value != below.get(knob, _UNSET)}
    assert {knob: value for knob, value in found.items() if knob in overlay} == overlay
    opened = {knob.rpartition(".")[0] for knob in overlay if knob not in below}
    others = {knob for knob in changed if not knob.startswith("dag.") and knob not in overlay}
    assert {knob for knob in others if knob.rpartition(".")[0] not in opened} <= {"profiles", "lineage.experiment"}
    assert changed["lineage.experiment"] == f"{below['lineage.experiment']}-{method}"
    assert changed["profiles"] == [base, method]


@pytest.mark.parametrize("method", method_names())
def test_a_method_is_the_same_on_the_paper_as_on_the_default(method: str) -> None:
    """Compare estimator, loss and schedule, in which the two bases do not differ."""
    paper, default = (params_of(f"{base} {method}") for base in ("paper", "default"))
    assert paper.advantages == default.advantages
    assert paper.update.loss == default.update.loss
    assert (paper.update.epochs, paper.update.minibatch) == (default.update.epochs, default.update.minibatch)


def test_the_later_profile_is_on_top_and_params_yaml_says_which(project: Path) -> None:
    assert main(["configure", "smoke", "grpo", "loop_per_turn", "--set", "seed=3"]) == 0
    params = load_params(project / "params.yaml")
    assert (params.update.loss.importance, params.update.loss.kl_coefficient) == ("turn", 0.04)
    assert (params.profiles, params.lineage.experiment) == (
        ("smoke", "grpo", "loop_per_turn"),
        "loopline-smoke-grpo-loop_per_turn",
    )
    assert (project / "params.yaml").read_text().startswith("profiles: [smoke, grpo, loop_per_turn] ")
    assert main(["configure", "--refresh", "--set", "iterations=1"]) == 0
    assert load_params(project / "params.yaml").profiles == params.profiles


def test_a_profile_that_extends_another_brings_it(project: Path) -> None:
    alone, named = (params_of(names).model_dump() for names in ("paper_official", "paper paper_official"))
    assert alone | {"profiles": ()} == named | {"profiles": ()}
    assert alone["policy"] == params_of("paper").model_dump()["policy"]


def test_refresh_brings_the_maps_in_step(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["configure", "default"])
    path = project / "params.yaml"
    path.write_text(path.read_text().replace("iterations: 24", "iterations: 3"))
    with pytest.raises(ParamsError, match=r"loopline configure --refresh"):
        load_params(path)
    assert main(["configure", "--refresh", "--set", "evaluation.every=2"]) == 0
    params = load_params(path)
    assert [before.policy for before in params.dag.previous.values()] == ["i000", "i001", "i002"]
    assert params.dag.evaluated == ["i000", "i002", "i003"]


def test_staleness_is_a_property_of_the_dag(project: Path) -> None:
    assert main(["configure", "default", "--set", "iterations=4", "--set", "collection.staleness=1"]) == 0
    previous = load_params(project / "params.yaml").dag.previous
    assert [before.policy for before in previous.values()] == ["i000", "i001", "i002", "i003"]
    assert [before.behaviour for before in previous.values()] == ["i000", "i000", "i001", "i002"]
    assert [before.staleness for before in previous.values()] == [0, 1, 1, 1]
    path = project / "params.yaml"
    path.write_text(path.read_text().replace("staleness: 1", "staleness: 2"))
    with pytest.raises(ParamsError, match=r"dag\.previous does not match .*; run `loopline configure"):
        load_params(path)


def test_a_search_takes_the_place_of_collecting(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["configure", "smoke", "dpo_mcts"]) == 0
    params = load_params(project / "params.yaml")
    assert (params.dag.collected, params.dag.searched, params.dag.sampled) == ({}, {"i001": "i000"}, {"i001": "i000"})
    for setting, message in (
        ("collection.turn_progress=true", "collection.tree supports no demonstrations, temperatures or turn_progress"),
        ("advantages.pair_gap=null", "update.objective: preference needs advantages.pair_gap"),
        ("update.objective=clipped", "needs advantages.pair_gap, and no other objective uses it"),
    ):
        assert main(["configure", "smoke", "dpo_mcts", "--set", setting]) == 2
        assert message in capsys.readouterr().err
    assert main(["configure", "smoke", "--set", "collection.tree={}"]) == 2
    assert "collection.tree makes pairs of turns" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("every", "batches", "behaviours"),
    [
        (0, ["i001"] * 4, ["i000"] * 4),
        (2, ["i001", "i001", "i003", "i003"], ["i000", "i000", "i002", "i002"]),
        (3, ["i001", "i001", "i001", "i004"], ["i000", "i000", "i000", "i003"]),
    ],
)
def test_how_often_rollouts_are_collected_is_a_property_of_the_dag(
    project: Path, every: int, batches: list[str], behaviours: list[str]
) -> None:
    assert main(["configure", "default", "--set", "iterations=4", "--set", f"collection.every={every}"]) == 0
    params = load_params(project / "params.yaml")
    assert [before.batch for before in params.dag.previous.values()] == batches
    assert [before.behaviour for before in params.dag.previous.values()] == behaviours
    assert params.dag.collected == dict(zip(batches, behaviours, strict=True))
    path = project / "params.yaml"
    path.write_text(path.read_text().replace("collected: {i001: i000", "collected: {i001: i001"))
    with pytest.raises(ParamsError, match=r"dag\.collected does not match .*; run"):
        load_params(path)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("update.objective=preference", "preference needs advantages.pair_gap"),
        ("advantages.pair_gap=0.1", "preference needs advantages.pair_gap"),
        ("update.critic={}", "set advantages.estimator: episode_return"),
        ("advantages.estimator=turn_progress", "needs collection.turn_progress: true"),
        ("update={objective: preference, loss: {kl_coefficient: 0.1}}", "uses no kl_coefficient"),
    ],
)
def test_a_method_with_a_part_missing_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], setting: str, message: str
) -> None:
    assert main(["configure", "default", "--set", setting]) == 2
    assert message in capsys.readouterr().err


def test_set_changes_one_knob_and_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["configure", "default"])
    capsys.readouterr()
    assert main(["configure", "default", "--set", "iterations=4", "--set", "update.loss.importance=turn"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["iterations: 24 -> 4", "update.loss.importance: token -> turn"]
    assert load_params(project / "params.yaml").iterations == 4


def test_a_key_twice_is_refused_with_its_line_and_left_as_it_is(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / "params.yaml"
    assert main(["configure", "default"]) == 0
    path.write_text(path.read_text().replace("\niterations: 24", "\niterations: 3\niterations: 24"))
    text, number = path.read_text(), path.read_text().splitlines().index("iterations: 3") + 2
    assert main(["configure", "--refresh"]) == 1
    message = f"params.yaml: not valid YAML: line {number}: duplicate key 'iterations', first on line"
    assert message in capsys.readouterr().err
    assert path.read_text() == text


def test_as_it_was_is_printed_for_the_same_bytes_only(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = project / "params.yaml"
    main(["configure", "default"])
    whole, made = path.read_text(), path.stat().st_ino
    capsys.readouterr()
    assert main(["configure", "--refresh"]) == 0
    assert (capsys.readouterr().out, path.stat().st_ino) == ("params.yaml is as it was\n", made)
    path.write_text(f"# mine\n{whole}")
    assert main(["configure", "--refresh"]) == 0
    assert capsys.readouterr().out.startswith("no value has changed; the text of params.yaml was written anew")
    assert path.read_text() == whole


@pytest.mark.parametrize("value", ["3.0", "true", "abc", "null", "-1"])
@pytest.mark.parametrize("knob", ["iterations", "evaluation.every", "collection.every", "collection.staleness"])
def test_an_impossible_number_names_its_knob(
    project: Path, capsys: pytest.CaptureFixture[str], knob: str, value: str
) -> None:
    assert main(["configure", "default", "--set", f"{knob}={value}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"params.yaml: {knob}: Input should be " in line


def test_a_file_with_conflict_markers_is_written_anew(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = project / "params.yaml"
    assert main(["configure", "default"]) == 0
    whole = path.read_text()
    path.write_text(f"<<<<<<< HEAD\nseed: 1\n=======\n{whole}>>>>>>> other\n")
    assert main(["configure", "--refresh"]) == 1
    assert "params.yaml: not valid YAML: line 1: a git conflict marker" in capsys.readouterr().err
    assert main(["configure", "default"]) == 0
    assert path.read_text() == whole
    assert capsys.readouterr().out.startswith("what was there could not be read, so every value counts as new: ")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nope"], 2, "no profile 'nope'; there are default, appworld, "),
        (["apworld"], 2, "no profile 'apworld'; did you mean appworld? (docs/methods.md)"),
        (["default", "--set", "update.epoch=2"], 2, "update.epoch: no such knob; did you mean update.epochs?"),
        (["default", "--set", "learning_rate=1"], 2, "learning_rate: no such knob; did you mean update.learning_rate?"),
        (["default", "--set", "update.critic={lerning_rate: 1}"], 2, "did you mean update.critic.learning_rate?"),
        (["appworld", "--set", "world.appworld.cuonts=1"], 2, "did you mean world.appworld.counts?"),
        (["default", "--set", "zzz=1"], 2, "zzz: no such knob; docs/configuration.md lists all"),
        (["default", "--set", "iterations=-1"], 2, "iterations: Input should be greater than or equal to 0"),
        (["default", "--set", "collection.rollouts_per_task=1"], 2, "collection.rollouts_per_task"),
        (["default", "--set", "collection.staleness=-1"], 2, "collection.staleness: Input should be"),
        (["default", "--set", "evaluation=3"], 2, "evaluation: Input should be"),
        (["default", "--set", "iterations"], 2, "expected NAME=VALUE"),
        (["default", "--set", "seed=[1"], 2, "not valid YAML"),
        (["paper", "nope"], 2, "no profile 'nope'; there are default, appworld, "),
        (
            ["smoke", "paper"],
            2,
            "smoke and paper contradict each other: iterations is 2 in the one and 90",
        ),
        (["rloo", "default"], 2, "default lies below all others; name it first, or not at all"),
        (["--refresh"], 1, "missing; run `loopline configure default`"),
    ],
)
def test_bad_input_is_one_message_and_writes_nothing(
    arguments: list[str], code: int, message: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["configure", *arguments]) == code
    printed = capsys.readouterr().err
    assert message in printed
    assert "Traceback" not in printed
    assert list(project.iterdir()) == []


def test_values_of_set_are_yaml() -> None:
    assert parse_assignment("a.b=[1, x]") == {"a": {"b": [1, "x"]}}
    assert parse_assignment("policy.revision=null") == {"policy": {"revision": None}}
    assert parse_assignment("lineage.experiment=a=b") == {"lineage": {"experiment": "a=b"}}


def test_a_knob_of_a_world_or_an_engine_that_is_not_in_use_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for setting, message in (
        ("world.webshop.products=700", "world.name is pocketworld, which has no section webshop"),
        ("engine.vllm.servers=2", "engine.name is transformers, which has no section vllm"),
    ):
        assert main(["configure", "default", "--set", setting]) == 2
        assert message in capsys.readouterr().err
    assert main(["configure", "default", "--set", "engine.name=vllm", "--set", "engine.vllm.servers=2"]) == 0
    content = yaml.safe_load((project / "params.yaml").read_text())
    assert set(content["engine"]) == {"name", "vllm"} and content["engine"]["vllm"]["servers"] == 2
    assert main(["configure", "--refresh", "--set", "engine.name=transformers", "--set", "world.name=sokoban"]) == 0
    content = yaml.safe_load((project / "params.yaml").read_text())
    assert content["engine"] == {"name": "transformers"}
    assert set(content["world"]) == {"name", "seed", "code_blocks", "sokoban"}


def test_params_yaml_is_short_and_every_knob_has_a_comment(project: Path) -> None:
    assert main(["configure", "default"]) == 0
    lines = (project / "params.yaml").read_text().splitlines()
    assert len(lines) <= 170
    knobs = lines[: lines.index("dag:")]
    assert [line for line in knobs if "  # " not in line] == []


@pytest.mark.parametrize("name", profile_names())
def test_comments_are_short_and_change_no_value(name: str) -> None:
    params = params_of(name) if name not in method_names() else params_of(f"default {name}")
    comments = {knob: text for knob, text in knob_comments(params).items() if not knob.startswith("dag")}
    assert {knob: text for knob, text in comments.items() if not 3 < len(text) <= LONGEST_COMMENT} == {}
    text = text_of(params)
    assert parse_yaml(text) == yaml.safe_load(text) == params.model_dump(mode="json")


@pytest.mark.parametrize(("section", "first"), [("world", "appworld"), ("engine", "chat_api")])
def test_a_world_or_an_engine_that_does_not_exist_is_named_with_those_that_do(section: str, first: str) -> None:
    with pytest.raises(ParamsError, match=rf"{section}\.name: no {section} is called 'nowhere': there are {first}, "):
        params_of("default", [f"{section}.name=nowhere"])
    with pytest.raises(ParamsError, match=r"default: world\.seed: Input should be a valid integer"):
        params_of("default", ["world.seed=x"])
