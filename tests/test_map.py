"""The tree: maps of the code, places of stages, docstrings and the bytes of a checkout."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from flows.dag.stages import STAGES, Stage

ROOT = Path(__file__).resolve().parents[1]
MAPPED = ("flows", "tasks", "tasks/core")
"""Folders whose every folder must be on the whole map."""


def _paths(page: str, margin: str) -> list[str]:
    """Return folders and modules of a page's map, in its order: ["tasks", "tasks/prepare_world.py", ...]."""
    text = (ROOT / page).read_text(encoding="utf-8")
    paths: list[str] = []
    parents: list[str] = []
    for indent, name in re.findall(rf"^{margin}( *)(\w+(?:/|\.py)) +\S.*$", text, re.MULTILINE):
        parents = [*parents[: len(indent) // 2], name.rstrip("/")]
        paths.append("/".join(parents))
    return paths


def test_every_folder_is_on_the_map_and_no_other() -> None:
    paths = _paths("docs/code.md", "")
    mapped = {path for path in paths if path.rpartition("/")[0] in MAPPED and not path.endswith(".py")}
    folders = {path for parent in MAPPED for path in (ROOT / parent).iterdir() if path.is_dir()}
    assert mapped == {str(path.relative_to(ROOT)) for path in folders if path.name != "__pycache__"}


def test_the_map_lists_the_stages_in_the_order_of_the_pipeline() -> None:
    paths = _paths("docs/code.md", "")
    mapped = [path for path in paths if path.rpartition("/")[0] == "tasks" and path != "tasks/core"]
    assert all((ROOT / path).exists() for path in mapped)
    names = [path.removeprefix("tasks/").removesuffix(".py") for path in mapped]
    assert names == [stage.name for stage in STAGES if stage.name != "version_stages"]


def test_the_readme_maps_the_code_in_ten_lines() -> None:
    mapped = _paths("README.md", "    ")
    assert {"flows", "tasks", "tasks/core", "tests", "docs"} <= set(mapped)
    assert len(mapped) <= 10
    assert [path for path in mapped if not (ROOT / path).is_dir()] == []


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


def test_no_docstring_is_a_fragment() -> None:
    files = sorted(file for room in ("flows", "tasks") for file in (ROOT / room).rglob("*.py"))
    assert len(files) > 300
    fragments = re.compile(r'^ *"""(?:What|Of) .*', re.MULTILINE)
    assert {str(file): found for file in files if (found := fragments.findall(file.read_text(encoding="utf-8")))} == {}


def test_line_endings_stay_under_autocrlf(tmp_path: Path) -> None:
    made, cloned = tmp_path / "made", tmp_path / "cloned"
    files = (".gitattributes", ".ci/env", "dvc.yaml", "flows/stage.py")
    for name in files:
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, made / name)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "made"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=made, check=True)
    subprocess.run(["git", "clone", "-q", "-c", "core.autocrlf=true", made, cloned], check=True)
    assert [name for name in files if (cloned / name).read_bytes() != (ROOT / name).read_bytes()] == []
