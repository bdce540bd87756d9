"""prefect.yaml and the flows that it names; the goal of a short iteration."""

import inspect
from pathlib import Path
from typing import Any

import prefect
import pytest
import yaml

from flows import deployments
from flows.configure import profile_content, write_params
from flows.orchestration.local_services import POOL

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
    assert declared["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}


def test_a_short_iteration_finishes_what_is_unfinished_before_it_adds(tmp_path: Path) -> None:
    write_params(tmp_path / "params.yaml", {**profile_content("drill"), "iterations": 2})
    assert deployments.iterations_to_reach(tmp_path, 3) == 2
    lock = tmp_path / "dvc.lock"
    lock.write_text("schema: '2.0'\nstages:\n  update_policy@i001: {cmd: x}\n")
    assert deployments.iterations_to_reach(tmp_path, 3) == 2
    lock.write_text("schema: '2.0'\nstages:\n  update_policy@i002: {cmd: x}\n")
    assert deployments.iterations_to_reach(tmp_path, 3) == 5
