"""A finished run held against a published one: equal but for clocks, or named by stage, column and row."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.app import main
from flows.published.records import PUBLISHED
from tasks.core.records.layout import Layout
from tests.flows.tiny_project import copy_project, succeed

pytestmark = pytest.mark.whole_runs

Lines = Callable[..., tuple[int, list[str]]]


@pytest.fixture(scope="module")
def published(finished_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a copy of the finished run, that has published itself as `small`."""
    root = copy_project(finished_project, tmp_path_factory.mktemp("published") / "project")
    assert "published/small" in succeed(root, "-m", "flows.cli", "publish", "small")
    return root


@pytest.fixture
def root(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of that, in which a test may change things; it is the current folder."""
    monkeypatch.chdir(copy_project(published, tmp_path / "project"))
    return Path.cwd()


@pytest.fixture
def verified(root: Path, capsys: pytest.CaptureFixture[str]) -> Lines:
    """Return a function that verifies the run and returns the exit code and all lines."""

    def verify(name: str = "small") -> tuple[int, list[str]]:
        code = main(["verify", name])
        printed = capsys.readouterr()
        return code, [*printed.out.splitlines(), *printed.err.splitlines()]

    return verify


def rewrite(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON artifact, which may be a hard link into DVC's cache."""
    content = json.loads(file.read_text())
    change(content)
    file.unlink()
    file.write_text(json.dumps(content))


def flip_a_bit(file: Path, column: str, row: int, value: int) -> None:
    """Flip the last bit of one number in a list column of a table."""
    table = pq.read_table(file)
    rows = table[column].to_pylist()
    numbers = np.array(rows[row], np.float32)
    numbers.view(np.uint32)[value] ^= 1
    rows[row] = numbers.tolist()
    place = table.column_names.index(column)
    changed = table.set_column(place, table.schema.field(column), pa.array(rows, table.schema.field(column).type))
    file.unlink()
    pq.write_table(changed, file)


def test_a_run_has_its_own_bytes(root: Path, verified: Lines) -> None:
    code, lines = verified()
    counted = sum(len(stage["artifacts"]) for stage in digests(root)["stages"])
    assert (code, lines) == (0, [f"all {counted} artifacts, made here, have the published bytes"])
    assert counted > 20
    code, lines = verified(f"{PUBLISHED}/small/dvc.lock")
    assert (code, len(lines)) == (0, 1)


def digests(root: Path) -> dict[str, Any]:
    return dict(json.loads((root / PUBLISHED / "small" / "digests.json").read_text()))


def test_clocks_alone_change_nothing(root: Path, verified: Lines) -> None:
    layout = Layout(root)
    rewrite(layout.metrics("i001"), lambda figures: figures.update(update_s=1e6, tokens_per_s=0.5))
    rewrite(layout.timings("i001"), lambda figures: figures.update(wall_s=1e6, clocks={"a#0": [1.0]}))
    rewrite(layout.attestation("score", "test_normal"), lambda said: said["version"].update(code="0" * 16))
    code, (line,) = verified()
    assert code == 0 and line.endswith("have the published bytes")


def test_another_figure_beside_the_clocks_is_named(root: Path, verified: Lines) -> None:
    rewrite(Layout(root).metrics("i001"), lambda figures: figures.update(entropy=0.25, update_s=1e6))
    before = json.loads((root / ".dvc" / "cache").joinpath(*cached(root, "metrics.json")).read_text())["entropy"]
    code, lines = verified()
    assert code == 1
    assert lines[:4] == [
        "update_policy@i001: data/iterations/i001/metrics.json differs from the published one, as the first of all",
        "  entropy",
        "    here:      0.25",
        f"    published: {before!r}",
    ]


def cached(root: Path, name: str) -> tuple[str, ...]:
    """Return the place in DVC's cache of the artifact whose path ends so."""
    lines = (root / "dvc.lock").read_text().splitlines()
    place = next(number for number, line in enumerate(lines) if line.endswith(name) and "path:" in line)
    md5 = next(line.partition("md5: ")[2] for line in lines[place:] if line.strip().startswith("md5: "))
    return "files", "md5", md5[:2], md5[2:]


def test_one_bit_of_one_number_is_named_by_column_and_row(root: Path, verified: Lines) -> None:
    file = Layout(root).rollouts("i001")
    table = pq.read_table(file)
    row = max(range(len(table)), key=lambda number: len(table["engine_logprobs"][number]))
    sampled = table["policy_mask"][row].as_py().index(True)
    flip_a_bit(file, "engine_logprobs", row, sampled)
    code, lines = verified()
    assert code == 1
    task, index = table["task_id"][row].as_py(), table["rollout_index"][row].as_py()
    assert lines[0].startswith("collect_rollouts@i001: data/iterations/i001/rollouts.parquet differs")
    assert lines[1] == (f"  engine_logprobs of row {row} (task_id {task}, rollout_index {index}), value {sampled}")
    here, there = (float(line.partition(":")[2]) for line in lines[2:4])
    assert here != there and here == pytest.approx(there, rel=1e-6)
    assert there == table["engine_logprobs"][row][sampled].as_py()


def test_without_the_published_file_column_and_row_are_known_and_no_value(root: Path, verified: Lines) -> None:
    file = Layout(root).rollouts("i001")
    flip_a_bit(file, "engine_logprobs", 3, 0)
    shutil.rmtree(root / ".dvc" / "cache")
    code, lines = verified()
    assert code == 1
    assert lines[1].startswith("  engine_logprobs of row 3 (")
    assert (
        lines[2] == "  the published file is neither in DVC's cache nor at a remote, so its values are not known here"
    )


def test_the_first_stage_of_several_is_named(root: Path, verified: Lines) -> None:
    rewrite(Layout(root).metrics("i001"), lambda figures: figures.update(entropy=0.25))
    rewrite(Layout(root).preflight, lambda tried: tried.update(positions=1))
    code, lines = verified()
    assert code == 1 and lines[0].startswith("preflight: data/preflight.json differs")


@pytest.mark.parametrize(
    ("file", "part", "name", "value", "line"),
    [
        ("run.json", "packages", "torch", "1.0", "packages: torch {torch} here, 1.0 published"),
        ("run.json", "machine", "processor", "abacus", "machine: processor {processor} here, abacus published"),
        (
            "run.json",
            "machine",
            "bits",
            "portable",
            "machine: bits of this processor here, portable published (the same",
        ),
        ("run.json", "knobs", "seed", 5, "knobs: seed 0 here, 5 published"),
        ("run.json", "code", "score", "0" * 16, "code: score ran other code (published at commit ?, here ?)"),
    ],
)
def test_what_differs_of_the_facts_is_a_line_and_stops_nothing(
    root: Path, verified: Lines, file: str, part: str, name: str, value: object, line: str
) -> None:
    place = root / PUBLISHED / "small" / file
    facts = json.loads(place.read_text())
    known = {key: facts[key_part][key] for key_part, key in (("packages", "torch"), ("machine", "processor"))}
    rewrite(place, lambda content: content[part].update({name: value}))
    code, lines = verified()
    assert code == 0 and len(lines) == 2
    assert lines[1].startswith(line.format(**known))


@pytest.mark.parametrize(
    ("damage", "exit_code", "message"),
    [
        (
            lambda root: (root / PUBLISHED / "small" / "digests.json").write_text('{"stages": ['),
            1,
            "; restore it from git",
        ),
        (lambda root: (root / PUBLISHED / "small" / "run.json").unlink(), 1, "run.json: missing; `loopline publish`"),
        (lambda root: Layout(root).selection.unlink(), 1, "selection.json: missing"),
        (lambda root: (root / "dvc.lock").write_text("a: ["), 1, "dvc.lock: not valid YAML"),
        (lambda root: shutil.rmtree(root / PUBLISHED), 2, "small: no published run; those of"),
    ],
)
def test_bad_input_is_one_line(
    root: Path, verified: Lines, damage: Callable[[Path], object], exit_code: int, message: str
) -> None:
    damage(root)
    code, (line,) = verified()
    assert code == exit_code and message in line


def test_a_run_that_is_not_whole_says_which_stage_is_missing(root: Path, verified: Lines) -> None:
    text = (root / "dvc.lock").read_text()
    (root / "dvc.lock").write_text(text[: text.index("  report:")] + text[text.index("  record_lineage:") :])
    code, (line,) = verified()
    assert code == 1 and "report did not run here yet" in line


def test_a_fresh_clone_fetches_the_run_from_a_remote(
    root: Path, verified: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeed(root, "-m", "dvc", "remote", "add", "--default", "--quiet", "store", str(tmp_path / "store"))
    succeed(root, "-m", "dvc", "push", "--quiet")
    clone = shutil.copytree(root, tmp_path / "clone", ignore=shutil.ignore_patterns("cache", "tmp", "dvc.lock"))
    for made in clone.joinpath("data").iterdir():
        if made.name != "base_policies":
            shutil.rmtree(made) if made.is_dir() else made.unlink()
    shutil.copy(root / PUBLISHED / "small" / "dvc.lock", clone / PUBLISHED / "small" / "dvc.lock")
    monkeypatch.chdir(clone)
    code, (line,) = verified()
    assert code == 0 and "artifacts, fetched, have the published bytes" in line


@pytest.fixture(autouse=True)
def _one_line_of_help(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "200")
    yield
