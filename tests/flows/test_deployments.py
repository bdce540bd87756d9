"""prefect.yaml and the flows that it names; the goal of a short iteration."""

import inspect
import subprocess
from pathlib import Path
from typing import Any

import prefect
import pytest
import yaml
from dvc.repo import Repo
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import ParameterTypeError, SignatureMismatchError
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import ValidationError, validate

from flows import deployments
from flows.cli.app import main
from flows.dag.dvc_seam import PipelineFailed
from flows.dag.stages import find_stage
from flows.dag.version_stages import stage_version
from flows.params_file import write_params
from flows.profile_stack import stacked
from flows.runners.local_services import POOL
from tasks.core.config.params import ParamsError, load_params
from tasks.core.lineage.git_state import git_state

ROOT = Path(__file__).resolve().parents[2]
DECLARED: list[dict[str, Any]] = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
FLOWS = {name: value for name, value in vars(deployments).items() if isinstance(value, prefect.Flow)}


def test_every_flow_is_deployed_and_no_other() -> None:
    assert {each["entrypoint"] for each in DECLARED} == {f"flows.deployments.{name}" for name in FLOWS}


@pytest.mark.parametrize("declared", DECLARED, ids=lambda each: each["entrypoint"])
def test_a_deployment_fits_its_flow(declared: dict[str, Any]) -> None:
    flow = FLOWS[declared["entrypoint"].rpartition(".")[2]]
    inspect.signature(flow.fn).bind(**declared.get("parameters", {}))
    assert declared["work_pool"] == {"name": POOL}
    one_at_a_time = {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    assert declared.get("concurrency_limit") == (None if "triggers" in declared else one_at_a_time)  # each event counts


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *(("short_iteration", {"iterations": value}) for value in (-1, 0, 1000, "many", 1.5)),
        ("rescore_champion", {"version": ""}),
        ("comparison", {"versions": []}),
        ("comparison", {"versions": [""]}),
        ("comparison", {}),
    ],
)
def test_impossible_parameters_are_refused_when_a_run_is_made_and_when_it_begins(
    name: str, parameters: dict[str, Any]
) -> None:
    flow = FLOWS[name]
    with pytest.raises(ValidationError):
        validate(parameters, parameter_schema(flow).model_dump_for_openapi(), raise_on_error=True)
    with pytest.raises((ParameterTypeError, SignatureMismatchError)):
        flow.validate_parameters(parameters)


def test_a_number_that_cannot_be_reached_changes_nothing(checkout: Path) -> None:
    with pytest.raises(ParamsError, match="iterations: Input should be less than or equal to 999"):
        deployments._raise_iterations(checkout, 1001)
    assert git(checkout, "status", "--porcelain") == ""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a git repository that tracks params.yaml."""
    write_params(tmp_path / "params.yaml", stacked(["drill"]))
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "params.yaml")
    git(tmp_path, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "params")
    return tmp_path


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def test_git_and_dvc_see_what_hourly_runs_raise_and_records_do_not_count_it_as_a_change(checkout: Path) -> None:
    for iterations in (2, 3):
        deployments._raise_iterations(checkout, iterations)
        assert git(checkout, "status", "--porcelain") == " M params.yaml\n"
        assert not git_state(checkout).dirty
        assert load_params(checkout / "params.yaml").iterations == iterations
    (checkout / "dvc.yaml").write_text("stages: {s: {foreach: '${dag.previous}', do: {cmd: 'echo ${key}'}}}")
    with Repo.init(str(checkout), no_scm=True) as repo:
        assert [stage.name for stage in repo.index.stages] == ["s@i001", "s@i002", "s@i003"]


def test_any_other_change_counts(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkout / "params.yaml"
    path.write_text(path.read_text().replace("seed: 0", "seed: 7", 1))
    deployments._raise_iterations(checkout, 2)
    assert git_state(checkout).dirty

    git(checkout, "checkout", "-q", "params.yaml")
    deployments._raise_iterations(checkout, 2)
    assert not git_state(checkout).dirty
    (checkout / "code.py").touch()
    git(checkout, "add", "code.py")
    assert git_state(checkout).dirty
    git(checkout, "rm", "-q", "--cached", "code.py")
    monkeypatch.chdir(checkout)
    assert main(["configure", "--refresh", "--set", "update.epochs=3"]) == 0
    assert git_state(checkout).dirty
    assert load_params(path).iterations == 2
    path.write_text("<<<<<<<")
    assert git_state(checkout).dirty


def test_a_short_iteration_finishes_what_is_unfinished_before_it_adds(tmp_path: Path) -> None:
    write_params(tmp_path / "params.yaml", {**stacked(["drill"]), "iterations": 2})
    assert deployments.iterations_to_reach(tmp_path, 3) == 2
    lock = tmp_path / "dvc.lock"
    lock.write_text("schema: '2.0'\nstages:\n  update_policy@i001: {cmd: x}\n")
    assert deployments.iterations_to_reach(tmp_path, 3) == 2
    lock.write_text("schema: '2.0'\nstages:\n  update_policy@i002: {cmd: x}\n")
    assert deployments.iterations_to_reach(tmp_path, 3) == 5


@pytest.mark.parametrize(("task", "goal"), [("filter_tasks", 2), ("update_policy@i002", 2), ("score@test_normal", 5)])
def test_iterations_that_other_code_or_parameters_trained_are_not_trained(tmp_path: Path, task: str, goal: int) -> None:
    write_params(tmp_path / "params.yaml", {**stacked(["drill"]), "iterations": 2})
    params = load_params(tmp_path / "params.yaml")
    for room in ("flows", "tasks"):
        (tmp_path / room).symlink_to(Path(deployments.__file__).parents[1] / room)

    def locked(name: str, **changes: str) -> str:
        stage = name.partition("@")[0]
        version = stage_version(find_stage(stage), params, tmp_path).model_dump() | changes
        knobs = ", ".join(f"{stage}.{part}: '{digest}'" for part, digest in version.items())
        return f"  {name}:\n    cmd: x\n    params:\n      data/stage_versions.json: {{{knobs}}}\n"

    names = ("filter_tasks", "update_policy@i002", "score@test_normal")
    (tmp_path / "dvc.lock").write_text("schema: '2.0'\nstages:\n" + "".join(map(locked, names)))
    assert deployments.iterations_to_reach(tmp_path, 3) == 5
    stages = (locked(name, **({"params": 16 * "0"} if name == task else {})) for name in names)
    (tmp_path / "dvc.lock").write_text("schema: '2.0'\nstages:\n" + "".join(stages))
    assert deployments.iterations_to_reach(tmp_path, 3) == goal


def test_a_failed_run_says_why_in_prefect_and_names_the_file_with_the_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> State[Any]:
        try:
            raise MemoryError("no room for 2 GB\nat block 3")
        except MemoryError as fault:
            raise PipelineFailed("failed to reproduce 'score'") from fault

    state = deployments._explained(tmp_path, fails)
    why = "MemoryError: no room for 2 GB (traceback: .loopline/traceback.log)"
    assert (state.type, state.message) == (StateType.FAILED, f"failed to reproduce 'score'\n{why}")
    assert capsys.readouterr().err == f"{state.message}\n"
    assert "in fails\n" in (tmp_path / ".loopline/traceback.log").read_text()
