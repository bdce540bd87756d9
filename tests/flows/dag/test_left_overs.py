"""Artifacts of iterations that the params no longer include: which are removed, which stay; nothing is lost."""

import hashlib
from pathlib import Path

import pytest
import yaml

from flows.dag.left_overs import SET_ASIDE, clear_left_overs, left_overs
from flows.params_file import params_of
from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tests.flows.tiny_project import configure, copy_project, succeed

SETTINGS = ("iterations=2", "evaluation.every=2")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Make two iterations whose artifacts DVC knows, and one after them."""
    succeed(tmp_path, "-m", "dvc", "init", "--no-scm", "--quiet")
    layout, outs = Layout(tmp_path), []
    for key in ("i000", "i001", "i002", "i003"):
        for path in (layout.metrics(key), layout.rollouts(key), layout.evaluation(key)):
            outs.append({"path": path.relative_to(tmp_path).as_posix(), "md5": _cached(tmp_path, path)})
        folder = layout.policy(key)
        folder.mkdir()
        (folder / "adapter.bin").write_text(f"weights of {key}")
    content = {"schema": "2.0", "stages": {f"update_policy@{key}": {"outs": outs} for key in ("i003",)}}
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump(content))
    return layout


def _cached(root: Path, path: Path) -> str:
    """Write a file and its copy in DVC's cache. Return its md5."""
    content = path.relative_to(root).as_posix().encode()
    md5 = hashlib.md5(content).hexdigest()
    copy = root / ".dvc" / "cache" / "files" / "md5" / md5[:2] / md5[2:]
    for target in (path, copy):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return md5


def names(layout: Layout) -> set[str]:
    return {path.relative_to(layout.data).as_posix() for path in layout.data.rglob("*") if path.is_file()}


def test_artifacts_in_dvcs_cache_are_removed_and_others_are_moved(layout: Layout) -> None:
    (layout.root / "data/iterations/notes.txt").write_text("mine")
    layout.rollouts("i003").write_text("edited by hand")
    lines = clear_left_overs(layout, params_of("drill", SETTINGS))
    assert [line.split()[:2] for line in lines] == [["removed:", "5"], ["moved:", "2"]]
    assert names(layout) == {
        "iterations/notes.txt",
        "iterations/i000/policy/adapter.bin",
        "evaluations/i000.json",
        "evaluations/i002.json",
        *(f"iterations/{key}/{name}" for key in ("i001", "i002") for name in ("metrics.json", "rollouts.parquet")),
        *(f"iterations/{key}/policy/adapter.bin" for key in ("i001", "i002")),
    }
    (aside,) = (layout.root / SET_ASIDE).iterdir()
    moved = {path.relative_to(aside).as_posix(): path.read_text() for path in aside.rglob("*") if path.is_file()}
    assert moved == {
        "iterations/i003/policy/adapter.bin": "weights of i003",
        "iterations/i003/rollouts.parquet": "edited by hand",
    }
    assert clear_left_overs(layout, params_of("drill", SETTINGS)) == []


def test_an_iteration_that_no_longer_collects_leaves_no_rollouts(layout: Layout) -> None:
    once = params_of("drill", ["iterations=3", "collection.every=0"])
    assert {path.relative_to(layout.data).as_posix() for path in left_overs(layout, once)} == {
        "iterations/i000/metrics.json",
        "iterations/i000/rollouts.parquet",
        "iterations/i002/rollouts.parquet",
        "iterations/i003/rollouts.parquet",
    }


def test_without_a_lock_nothing_is_removed(layout: Layout) -> None:
    (layout.root / "dvc.lock").unlink()
    before = len(names(layout))
    clear_left_overs(layout, params_of("drill", ["iterations=0"]))
    (aside,) = (layout.root / SET_ASIDE).iterdir()
    assert len(names(layout)) + len([path for path in aside.rglob("*") if path.is_file()]) == before


@pytest.mark.services
def test_a_run_made_shorter_and_longer_again_has_its_iterations_from_the_cache(
    finished_project: Path, tmp_path: Path
) -> None:
    folder = copy_project(finished_project, tmp_path / "project")
    before = digest(folder / "data" / "iterations"), digest(folder / "data" / "evaluations")
    configure(folder, "--refresh", "iterations=0")
    succeed(folder, "-m", "flows.cli", "run", "--without-prefect", "--until", "select_checkpoint")
    assert [path.name for path in (folder / "data" / "iterations").iterdir()] == ["i000"]
    assert {path.name[:4] for path in (folder / "data" / "evaluations").iterdir()} == {"i000"}
    assert not (folder / SET_ASIDE).exists()
    configure(folder, "--refresh", "iterations=1")
    said = succeed(folder, "-m", "dvc", "repro", "select_checkpoint")
    for stage in ("collect_rollouts@i001", "update_policy@i001", "evaluate_policy@i001"):
        assert f"Stage '{stage}' is cached" in said
    assert (digest(folder / "data" / "iterations"), digest(folder / "data" / "evaluations")) == before
