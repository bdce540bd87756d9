"""Places of stages: dvc.yaml, the registry, the tree and the layers name the same stages."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from flows.dag.stages import STAGES, Stage

ROOT = Path(__file__).resolve().parents[1]
OWN = "version_stages"
"""The stage that writes the versions of all others; it needs the registry, so it lies next to it."""


def modules(folder: str) -> set[str]:
    """Return the names of a folder's modules and packages."""
    paths = (ROOT / folder).iterdir()
    names = {path.stem for path in paths if path.suffix == ".py" or (path / "__init__.py").is_file()}
    return names - {"__init__"}


def test_the_stages_of_dvc_yaml_are_those_of_the_registry_and_the_modules_of_tasks() -> None:
    in_dvc = set(yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"])
    assert in_dvc == {stage.name for stage in STAGES}
    assert in_dvc - {OWN} == modules("tasks") - {"core"}


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_stage_is_the_function_of_its_name_in_the_module_of_its_name(stage: Stage) -> None:
    folder = "flows.dag" if stage.name == OWN else "tasks"
    assert stage.body == f"{folder}.{stage.name}:{stage.name}"
    body = stage.load()
    assert (body.__module__, body.__name__) == (stage.module, stage.name)


def test_the_layers_hold_every_stage_and_every_package_of_the_core() -> None:
    """No stage imports another: in a layer, `|` allows no import either way."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in settings["contracts"] if contract["id"] == "order")
    assert layers[0] == "flows"
    assert set(layers[1].split(" | ")) == {stage.module for stage in STAGES if stage.name != OWN}
    core = {name for layer in layers[2:] for name in re.findall(r"[\w.]+", layer)}
    assert core == {f"tasks.core.{name}" for name in modules("tasks/core")}
