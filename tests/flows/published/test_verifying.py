"""A finished run published, and runs held against it: equal but for clocks, or each difference listed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.cli.app import main
from flows.published import PUBLISHED, find_run
from tasks.core.records.layout import Layout, holds_clocks
from tests.flows.tiny_project import ROOT, copy_project, succeed

Lines = Callable[..., tuple[int, list[str]]]


def test_the_smoke_run_is_published_with_portable_bits() -> None:
    run = find_run("smoke", ROOT)
    assert run.manifest.machine.startswith("portable, torch ") and run.manifest.params["seed"] == 0
    assert {"data/iterations/i001/metrics.json", "data/scores/test_normal.json", "data/report"} <= set(run.artifacts)
    assert not any(holds_clocks(path) for path in run.artifacts)


@pytest.fixture(scope="module")
def published(finished_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a copy of the finished run, that has published itself as `small`."""
    root = copy_project(finished_project, tmp_path_factory.mktemp("published") / "project")
    assert "published/small" in succeed(root, "-m", "flows.cli", "publish", "small", "--here")
    return root


@pytest.fixture
def root(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of that, in which a test may change things; it is the current folder."""
    monkeypatch.chdir(copy_project(published, tmp_path / "project"))
    monkeypatch.setenv("COLUMNS", "200")
    return Path.cwd()


@pytest.fixture
def said(root: Path, capsys: pytest.CaptureFixture[str]) -> Lines:
    """Return a function that calls a command, by default `verify small --here`: its exit code and all lines."""

    def call(*command: str) -> tuple[int, list[str]]:
        code = main([*(command or ("verify", "small", "--here"))])
        printed = capsys.readouterr()
        return code, [*printed.out.splitlines(), *printed.err.splitlines()]

    return call


def rewrite(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON artifact, which may be a hard link into DVC's cache."""
    content = json.loads(file.read_text())
    change(content)
    file.unlink()
    file.write_text(json.dumps(content))


def edit_lock(root: Path, path: str) -> None:
    """Change the md5 of an artifact in dvc.lock, where its stage wrote it."""
    lines = (root / "dvc.lock").read_text().splitlines()
    place = max(number for number, line in enumerate(lines) if line.endswith(f"path: {path}"))
    place += next(more for more, line in enumerate(lines[place:]) if "md5: " in line)
    lines[place] = f"{lines[place].partition('md5: ')[0]}md5: {'ab' * 16}"
    (root / "dvc.lock").write_text("\n".join(lines))


@pytest.mark.whole_runs
def test_a_run_has_its_own_bytes_whatever_its_clocks_say(root: Path, said: Lines) -> None:
    layout = Layout(root)
    rewrite(layout.timings("i001"), lambda figures: figures.update(wall_s=1e6))
    rewrite(layout.update_timings("i001"), lambda figures: figures.update(update_s=1e6))
    number = len(find_run("small", root).artifacts)
    assert number > 20
    assert said() == (0, [f"all {number} artifacts have the published bytes"])
    assert said("verify", f"{PUBLISHED}/small/dvc.lock", "--here")[0] == 0


@pytest.mark.whole_runs
def test_every_difference_is_listed_in_the_pipelines_order_with_what_differs_of_the_run(
    root: Path, said: Lines
) -> None:
    layout = Layout(root)
    rewrite(layout.metrics("i001"), lambda figures: figures.update(entropy=0.25))
    rewrite(layout.preflight, lambda tried: tried.update(positions=1))
    layout.selection.unlink()
    rewrite(
        layout.manifest,
        lambda made: made.update(
            machine="abacus",
            libraries=made["libraries"] | {"torch": "1.0"},
            params=made["params"] | {"seed": 5},
            files=made["files"] | {"tasks/score.py": "0" * 64},
        ),
    )
    code, lines = said()
    number = len(find_run("small", root).artifacts)
    assert code == 1
    assert lines[:4] == [
        f"{number - 3} of {number} artifacts have the published bytes; these differ:",
        "  preflight: data/preflight.json",
        "  update_policy@i001: data/iterations/i001/metrics.json",
        "  select_checkpoint: data/selection.json (not here)",
    ]
    assert [line.partition(" published")[0].partition(" here")[0] for line in lines[4:]] == [
        "machine: machine abacus",
        "packages: torch 1.0",
        "knobs: seed 5",
        "code: tasks/score.py",
    ]


@pytest.mark.whole_runs
def test_other_code_is_a_note_where_the_bytes_are_equal(root: Path, said: Lines) -> None:
    rewrite(Layout(root).manifest, lambda made: made["files"].update({"tasks/score.py": "0" * 64}))
    code, (line,) = said()
    assert code == 0 and line.endswith("have the published bytes (code: tasks/score.py)")


@pytest.mark.whole_runs
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            lambda root: rewrite(Layout(root).score("test_normal"), lambda score: score.update(tgc=99.0)),
            "data/scores/test_normal.json: edited",
        ),
        (lambda root: edit_lock(root, "data/iterations/i001/metrics.json"), "update_policy@i001 wrote"),
        (
            lambda root: (root / "dvc.lock").write_text(
                (root / "dvc.lock").read_text().replace("  report:\n", "  reported:\n")
            ),
            "report did not run here yet",
        ),
        (
            lambda root: rewrite(Layout(root).manifest, lambda made: made["params"]["update"].update(epochs=7)),
            "update_policy: parameters changed since it ran",
        ),
        (
            lambda root: rewrite(Layout(root).manifest, lambda made: made.update(machine="abacus")),
            "the run was begun on abacus",
        ),
    ],
)
def test_what_the_run_did_not_make_is_not_published(
    root: Path, said: Lines, change: Callable[[Path], object], fault: str
) -> None:
    change(root)
    code, lines = said("publish", "mine", "--here")
    assert code == 1 and any(fault in line for line in lines), lines
    assert not (root / PUBLISHED / "mine").exists()


@pytest.mark.whole_runs
@pytest.mark.parametrize("file", ["dvc.lock", "manifest.json", "SHA256SUMS"])
def test_a_published_file_that_was_changed_or_is_missing_is_refused(root: Path, said: Lines, file: str) -> None:
    damaged = root / PUBLISHED / "small" / file
    damaged.write_text(damaged.read_text()[:-200])
    assert said()[0] == 1
    damaged.unlink()
    code, (line,) = said()
    assert code == 1 and "published/small: not as it was published; restore it from git" in line


@pytest.mark.whole_runs
def test_a_name_that_nobody_published_is_refused_with_those_that_are(said: Lines) -> None:
    code, (line,) = said("verify", "none", "--here")
    assert code == 2 and line.endswith("none: no published run; those of docs/results/published are: small")


@pytest.mark.whole_runs
def test_a_run_that_was_begun_with_other_knobs_and_stopped_is_told(root: Path, said: Lines) -> None:
    rewrite(Layout(root).stage_versions, lambda versions: versions["score"].update(params="0" * 16))
    code, (line,) = said()
    assert code == 1 and "score@test_normal: ran with other knobs than" in line


@pytest.mark.whole_runs
def test_where_nothing_ran_one_line_says_so(root: Path, said: Lines) -> None:
    (root / "dvc.lock").unlink()
    code, (line,) = said()
    assert code == 1 and "dvc.lock: missing; run `dvc repro`" in line


@pytest.mark.whole_runs
def test_a_profile_is_published_and_verified_by_runs_in_folders_of_their_own(root: Path, said: Lines) -> None:
    before = sorted(path.name for path in root.iterdir())
    assert said("publish", "drill")[0] == 0
    code, lines = said("verify", "drill")
    assert (code, len(lines)) == (0, 2) and lines[0].endswith("artifacts have the published bytes")
    assert find_run("drill", root).manifest.machine.startswith("portable")
    assert not any((root / ".loopline" / "anew").iterdir())
    assert sorted({path.name for path in root.iterdir()} - {".loopline"}) == sorted({*before} - {".loopline"})
