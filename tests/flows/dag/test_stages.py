"""The registry, dvc.yaml and the layout agree."""

import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from dvc.repo import Repo
from dvc.repo.reproduce import collect_stages, get_active_graph, plan_repro
from pydantic import BeforeValidator

from flows.dag.dvc_seam import by_iteration, stage_of_command
from flows.dag.stage_code import InUse, code_version, stage_files
from flows.dag.stages import STAGES, Stage, UnknownStage, check_key, find_stage
from flows.params_file import params_of, write_params
from flows.profile_stack import stacked
from tasks.core.config.dag import NO_POLICY_FILES, NO_WORLD_FILES
from tasks.core.config.params import Params, load_params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.config.stage_inputs import MemoryInputs, UpdateInputs
from tasks.core.config.world_settings import WorldSettings
from tasks.core.records.files import write_json
from tasks.core.records.layout import Layout, holds_clocks

ROOT = Path(__file__).resolve().parents[3]
LAYOUT = Layout(ROOT)
USED = InUse.by(params_of("default"))
BY_NAME = {stage.name: stage for stage in STAGES}
FOREACH = {
    "iteration": "${dag.previous}",
    "collected": "${dag.collected}",
    "searched": "${dag.searched}",
    "evaluated": "${dag.evaluated}",
    "split": list(TEST_SPLITS),
}
VALUES = {"score": [{"data/selection.json": ["iteration", "adapter_digest"]}]}
"""Values of artifacts of which a stage reads nothing else."""
OUTS = {
    "version_stages": [LAYOUT.stage_versions, LAYOUT.manifest],
    "prepare_world": [LAYOUT.world],
    "warm_start": [LAYOUT.warm_start],
    "prepare_policy": [LAYOUT.base_policy, LAYOUT.policy("i000")],
    "preflight": [LAYOUT.preflight],
    "filter_tasks": [LAYOUT.tasks],
    "collect_rollouts": [LAYOUT.rollouts("i002"), LAYOUT.timings("i002")],
    "filter_advantages": [LAYOUT.training_batch("i002"), LAYOUT.advantage_summary("i002")],
    "search_trees": [LAYOUT.rollouts("i002"), LAYOUT.timings("i002")],
    "pair_turns": [LAYOUT.training_batch("i002"), LAYOUT.advantage_summary("i002")],
    "update_policy": [LAYOUT.policy("i002"), LAYOUT.metrics("i002"), LAYOUT.update_timings("i002")],
    "evaluate_policy": [LAYOUT.evaluation("i002"), LAYOUT.evaluation_rollouts("i002")],
    "select_checkpoint": [LAYOUT.selection],
    "score": [
        LAYOUT.score("test_normal"),
        LAYOUT.score_rollouts("test_normal"),
        LAYOUT.training_budget_rollouts("test_normal"),
    ],
    "tabulate_curves": [LAYOUT.learning_curves],
    "report": [LAYOUT.report, *(LAYOUT.summary(split) for split in ("dev", *TEST_SPLITS))],
    "record_lineage": [LAYOUT.lineage],
}


@pytest.fixture(scope="module")
def definitions() -> dict[str, Any]:
    stages: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    return stages


def resolved(definitions: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a stage as DVC resolves it for iteration i002, or for test_normal."""
    definition = definitions[name].get("do", definitions[name])
    by_iteration = ("iteration", "collected", "searched")
    key, item = ("i002", "i001") if BY_NAME[name].each in by_iteration else ("", "i002")
    item = "test_normal" if BY_NAME[name].each == "split" else item
    text = yaml.safe_dump(definition).replace("${key}", key).replace("${item}", item)
    text = text.replace("${item.policy}", "i001").replace("${item.batch}", "i002")
    text = text.replace("${dag.recited_world}", NO_WORLD_FILES)
    text = text.replace("${dag.sources.policy}", NO_POLICY_FILES).replace("${dag.sources.world}", NO_WORLD_FILES)
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def test_dev_is_played_right_after_each_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In DVC's own order, and in that of a run whose iterations end one by one."""
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    write_params(tmp_path / "params.yaml", {**stacked(["drill"]), "iterations": 3, "evaluation": {"every": 2}})
    monkeypatch.chdir(tmp_path)
    with Repo.init(no_scm=True) as repo:
        plan = plan_repro(get_active_graph(repo.index.graph), collect_stages(repo, ["dvc.yaml"]))
        for order in ([stage.addressing for stage in plan], by_iteration(repo, [])):
            repeated = [name for name in order if "@i" in name and "filter" not in name]
            assert repeated == [
                "evaluate_policy@i000",
                *("collect_rollouts@i001", "update_policy@i001"),
                *("collect_rollouts@i002", "update_policy@i002", "evaluate_policy@i002"),
                *("collect_rollouts@i003", "update_policy@i003", "evaluate_policy@i003"),
            ]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_dvc_yaml_agrees_with_the_registry_and_the_layout(stage: Stage, definitions: dict[str, Any]) -> None:
    assert definitions[stage.name].get("foreach", "") == FOREACH.get(stage.each, "")
    definition = resolved(definitions, stage.name)
    key = {"": "", "split": "test_normal"}.get(stage.each, "i002")
    assert stage_of_command(definition["cmd"]) == (stage.name, key)
    read = [{"data/stage_versions.json": [f"{stage.name}.code", f"{stage.name}.params"]}, *VALUES.get(stage.name, ())]
    first = stage.name == "version_stages"
    assert definition.get("params", []) == ([] if first else read)
    outs = [*definition.get("outs", []), *definition.get("metrics", [])]
    paths = {str(ROOT / (next(iter(out)) if isinstance(out, dict) else out)) for out in outs}
    attested = [] if first else [LAYOUT.attestation(stage.name, key)]
    assert paths == {str(path) for path in (*OUTS[stage.name], *attested)}


def test_every_dependency_is_an_output_or_in_git(definitions: dict[str, Any]) -> None:
    assert list(definitions) == [stage.name for stage in STAGES]
    made = {str(path.relative_to(ROOT)) for paths in OUTS.values() for path in paths}
    before = str(LAYOUT.policy("i001").relative_to(ROOT))
    for name in definitions:
        for dep in resolved(definitions, name).get("deps", []):
            written = any(out == dep or out.startswith(f"{dep}/") for out in made | {before})
            assert written or dep in (NO_POLICY_FILES, NO_WORLD_FILES) or name == "version_stages", (name, dep)


def deps_of(project: Path, **collection: int) -> dict[str, set[str]]:
    """Return the dependencies of each stage of three iterations as DVC resolves dvc.yaml."""
    shutil.copy(ROOT / "dvc.yaml", project)
    write_params(project / "params.yaml", {"iterations": 3, "collection": collection})
    with Repo(str(project)) as repo:
        return {stage.name: {dep.def_path for dep in stage.deps} for stage in repo.index.stages}


def test_a_stale_iteration_waits_for_no_update_of_the_one_before(project: Path) -> None:
    """With staleness 1, i001 samples the rollouts of i003, for the update of i003 only."""
    deps = deps_of(project, staleness=1)
    policies = {f"data/iterations/i00{i}/policy" for i in range(4)}
    assert deps["collect_rollouts@i003"] & policies == {"data/iterations/i001/policy"}
    assert deps["update_policy@i003"] & policies == {"data/iterations/i002/policy"}
    assert deps["collect_rollouts@i001"] & policies == {"data/iterations/i000/policy"}


@pytest.mark.parametrize(
    ("changed", "is_stale"), [("candidates", False), ("dev_tgc", False), ("iteration", True), ("adapter_digest", True)]
)
def test_scores_are_stale_where_another_policy_is_selected(
    project: Path, monkeypatch: pytest.MonkeyPatch, changed: str, is_stale: bool
) -> None:
    """By DVC's own view of a selection: two more iterations that do not win change who stood for election alone."""
    shutil.copy(ROOT / "dvc.yaml", project)
    write_params(project / "params.yaml", {"iterations": 2})
    selection: dict[str, object] = {"iteration": "i002", "adapter_digest": "0" * 64, "dev_tgc": 50.0, "candidates": []}
    path = project / "data" / "selection.json"
    write_json(path, selection)
    monkeypatch.chdir(project)
    with Repo(str(project)) as repo:
        (stage,) = repo.stage.collect("score@test_normal")
        (dependency,) = (dep for dep in stage.deps if dep.def_path == "data/selection.json")
        dependency.save()
        assert dependency.status() == {}
        write_json(path, selection | {changed: "other"})
        assert bool(dependency.status()) is is_stale


def test_rollouts_are_collected_once_where_asked(project: Path) -> None:
    """Two iterations train on the first's rollouts, the third on its own."""
    deps = deps_of(project, every=2)
    collecting = {name for name in deps if name.startswith(("collect", "filter_adv"))}
    assert collecting == {
        f"{name}@{key}" for name in ("collect_rollouts", "filter_advantages") for key in ("i001", "i003")
    }
    assert {"data/iterations/i001/policy", "data/iterations/i001/training_batch.parquet"} <= deps["update_policy@i002"]
    assert "data/iterations/i003/training_batch.parquet" in deps["update_policy@i003"]
    assert "data/iterations/i002/policy" in deps["collect_rollouts@i003"]


def test_learning_depends_on_no_wall_clock_file(definitions: dict[str, Any]) -> None:
    reporting = {"tabulate_curves", "report", "record_lineage"}
    for name in set(definitions) - reporting:
        for dep in resolved(definitions, name).get("deps", []):
            assert not holds_clocks(dep), name
            assert dep != "data/iterations", name


INPUTS = {stage.name: stage.inputs for stage in STAGES if stage.inputs is not None}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_are_read_from_their_declared_keys_with_the_knobs_types(name: str) -> None:
    inputs = INPUTS[name]
    for field, info in inputs.model_fields.items():
        if info.annotation is MemoryInputs:
            continue
        if inputs.knob_of(field).startswith("world.settings."):  # what a world says of itself is no knob
            assert inputs.knob_of(field).rpartition(".")[2] in WorldSettings.__class_vars__
            continue
        sections: list[Any] = [Params]
        *path, knob = inputs.knob_of(field).split(".")
        for part in path:
            kinds = [kind.model_fields[part].annotation for kind in sections if part in kind.model_fields]
            sections = [member for kind in kinds for member in _members(kind)]
        wanted = {kind.model_fields[knob].annotation for kind in sections if knob in kind.model_fields}
        assert wanted, f"{field}: no section of params.yaml has it"
        if not any(isinstance(mark, BeforeValidator) for mark in info.metadata):
            assert {info.annotation} == wanted or set(get_args(info.annotation)) == {*map(_literal, wanted)}, field


def _members(kind: Any) -> list[Any]:
    """The classes of a section of several kinds, or the one class of another."""
    return [get_args(member)[0] for member in get_args(kind)] or [kind]


def _literal(kind: Any) -> Any:
    """The value of a Literal that has one, such as the name of a kind of section."""
    return get_args(kind)[0] if len(get_args(kind)) == 1 else kind


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_stage_sees_what_it_declares_and_nothing_else(stage: Stage) -> None:
    params = load_params(ROOT / "params.yaml")
    seen = stage.inputs_of(params)
    if stage.inputs is None:
        assert stage.name in ("version_stages", "report", "record_lineage") and seen is params
        return
    declared = {stage.inputs.knob_of(field) for field in stage.inputs.model_fields}
    assert not hasattr(seen, "lineage") and not hasattr(seen, "machines") and not hasattr(seen, "collection")
    for knob in stage.knobs(params):
        assert any(knob == place or knob.startswith(f"{place}.") for place in declared)


def test_of_collection_the_update_sees_only_the_sampler_and_its_temperatures() -> None:
    params = load_params(ROOT / "params.yaml")
    inputs = find_stage("update_policy").inputs_of(params)
    assert isinstance(inputs, UpdateInputs) and inputs.temperature == params.collection.temperature
    knobs = find_stage("update_policy").knobs(params)
    seen = {f"collection.{name}" for name in ("temperature", "temperatures", "demonstrations")}
    assert {name for name in knobs if name.startswith("collection")} == seen
    assert {name for name in knobs if name.startswith("engine")} == {"engine.name"}
    with pytest.raises(AttributeError):
        _ = inputs.collection  # type: ignore[attr-defined]


def test_preflight_depends_on_nothing_that_needs_no_memory() -> None:
    def knobs(*assignments: str) -> dict[str, Any]:
        return find_stage("preflight").knobs(params_of("default", assignments))

    free = ["seed=3", "iterations=7", "update.learning_rate=1", "update.epochs=5", "update.minibatch=8"]
    free += ["update.loss.clip_epsilon=0.3", "update.kl_stop.limit=3", "collection.temperature=0.7"]
    for assignment in free:
        assert knobs(assignment) == knobs(), assignment
    needed = ("iterations=0", "update.tokens_per_pack=99", "policy.lora.rank=2", "collection.limits.max_turns=3")
    for assignment in needed:
        assert knobs(assignment) != knobs(), assignment


@pytest.mark.parametrize("assignment", ["engine.vllm.servers=2", "machines.ray.address=auto", "evaluation.every=2"])
def test_where_and_how_fast_work_is_done_makes_nothing_stale(assignment: str) -> None:
    before, after = params_of("vllm_smoke"), params_of("vllm_smoke", [assignment])
    assert before != after
    for stage in STAGES:
        if stage.inputs is not None and stage.name not in ("select_checkpoint", "tabulate_curves"):
            assert stage.knobs(after) == stage.knobs(before), stage.name


def test_stage_keys() -> None:
    params = Params(iterations=3)
    assert find_stage("collect_rollouts").keys(params) == ("i001", "i002", "i003")
    assert find_stage("evaluate_policy").keys(params) == ("i000", "i002", "i003")
    assert find_stage("report").keys(params) == ("",)
    with pytest.raises(UnknownStage, match="update_policy: a key is missing; it is run for: i001, i002, i003"):
        check_key(find_stage("update_policy"), "", params)
    with pytest.raises(UnknownStage, match="report takes no key"):
        check_key(find_stage("report"), "i001", params)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_stage_runs_code_and_no_code_of_the_report(stage: Stage) -> None:
    files = {*stage_files(stage, ROOT, USED)}
    place = stage.module.replace(".", "/")
    assert files & {f"{place}.py", f"{place}/__init__.py"}
    assert len(code_version(stage, ROOT, USED)) == 64
    of_report = {file for file in files if file.startswith("tasks/report/") and file.endswith(".py")}
    if stage.name not in ("report", "version_stages"):
        assert not of_report


def test_commands_of_others_are_left_alone() -> None:
    assert stage_of_command("python -m flows.stage score test_normal") == ("score", "test_normal")
    assert stage_of_command("python -m flows.stage report") == ("report", "")
    for other in ("echo hello", "python -m flows.stage", "python -m flows.cli configure smoke"):
        assert stage_of_command(other) is None
