"""The parts of the report by hand: lost skill, squares of the heat map, coverage, summaries, the viewer."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tasks.core.config.params import Params
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.schemas import TRAINING_BATCH
from tasks.core.records.tables import write_rows
from tasks.core.signal_coverage import coverage
from tasks.report import BY_TURN, SplitSummary, read_advantages
from tasks.report.curves import Cell, coverage_curves, heat_map, lost_skill


def found(dev_tgc: dict[int, float]) -> list[tuple[int, str]]:
    return [(warning.iteration, warning.evidence) for warning in lost_skill(dev_tgc)]


def test_dev_scores_ten_points_under_the_best_twice_in_a_row_are_lost_skill() -> None:
    """The best is 70; 60 is ten under it, 61 is not; iterations that were not evaluated are skipped."""
    assert found({1: 50, 2: 70, 3: 60, 4: 61, 5: 60, 7: 61, 8: 61}) == []
    ((iteration, evidence),) = found({2: 70, 4: 60, 6: 59, 8: 75})
    assert (iteration, evidence) == (4, "TGC on dev fell 10 points or more under its best (70.0) and stayed there")


def test_the_base_policys_skill_counts_too() -> None:
    assert [iteration for iteration, _ in found({0: 41, 1: 5, 2: 5})] == [1]


def test_too_few_evaluations_give_no_warning() -> None:
    assert found({}) == found({0: 80, 1: 0}) == []


def shades(figure: ElementTree.Element, name: str) -> dict[str, str]:
    group = next(group for group in figure.iter("g") if group.attrib["class"] == name)
    return {path.attrib["class"]: path.attrib["d"] for path in group.iter("path")}


def test_both_maps_have_one_square_per_cell() -> None:
    rows = [("a<", {1: Cell(0.0, 0.0), 3: Cell(1.0, 0.5)}), ("b", {2: Cell(0.96, 0.0)})]
    html = heat_map(rows, 3)
    figure = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])
    assert shades(figure, "mean_return") == {"h0": "M0 0h1v1h-1z", "h10": "M2 0h1v1h-1zM1 1h1v1h-1z"}
    assert shades(figure, "success_share") == {"h0": "M0 0h1v1h-1zM1 1h1v1h-1z", "h5": "M2 0h1v1h-1z"}
    assert figure.attrib["viewBox"] == "0 0 3 2"
    assert "<li>a&lt;</li><li>b</li>" in html


def test_a_run_without_rollouts_has_an_empty_map() -> None:
    html = heat_map([], 2)
    assert "<path" not in html
    ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])


def test_the_curves_by_hand() -> None:
    """Three tasks; in the second iteration one group is mixed, one differs by return alone, one is a single rollout."""
    progress = [
        ("a", {1: Cell(0.5, 0.5, 4, varies=True), 2: Cell(0.75, 0.75, 4, varies=True)}),
        ("b", {1: Cell(0.0, 0.0, 4), 2: Cell(0.2, 0.0, 4, varies=True)}),
        ("c", {1: Cell(1.0, 1.0, 4), 2: Cell(1.0, 1.0, 1), 3: Cell(1.0, 1.0, 2)}),
    ]
    curves = coverage_curves(progress, 4)
    assert curves["by success"] == [(1, pytest.approx(1 / 3)), (2, 0.5), (3, 0.0)]
    assert curves["by return"] == [(1, pytest.approx(1 / 3)), (2, 1.0), (3, 0.0)]
    second = coverage([2, 0, 4], [4, 4, 4]).by_task(4)
    third = coverage([2 / 2 + 3, 0, 4 / 2 + 1], [6, 6, 3]).by_task(2)
    expected = dict(curves["expected"])
    assert expected == {2: pytest.approx(second[:2].mean()), 3: pytest.approx(third[2])}


def test_a_run_without_rollouts_has_no_curves() -> None:
    assert set(map(len, coverage_curves([], 3).values())) == {0}


ROOT = Path(__file__).resolve().parents[2]


def test_each_split_has_the_figures_of_selected_and_base(reported_run: StageContext[Params]) -> None:
    summary = {split: json.loads(reported_run.layout.summary(split).read_text()) for split in ("dev", "test_normal")}
    assert set(summary["dev"]) == set(summary["test_normal"]) == set(SplitSummary.model_fields)
    assert (summary["dev"]["tgc"], summary["dev"]["sgc"], summary["dev"]["tgc_gain_se"]) == (50.0, 25.0, None)
    assert summary["dev"]["tgc_gain"] == summary["dev"]["tgc"] - summary["dev"]["base_tgc"]
    assert (summary["test_normal"]["tgc"], summary["test_normal"]["tgc_gain"]) == (70.04, 40.04)


def test_dvc_metrics_show_fits_a_terminal(reported_run: StageContext[Params], tmp_path: Path) -> None:
    """In a repository of DVC's own, with the metrics that dvc.yaml declares."""
    for name in ("dvc.yaml", "params.yaml"):
        shutil.copy2(ROOT / name, tmp_path)
    shutil.copytree(reported_run.layout.data / "summary", tmp_path / "data" / "summary")
    wide = {**os.environ, "COLUMNS": "120"}
    for command in (["init", "-q", "--no-scm"], ["metrics", "show"]):
        dvc = [sys.executable, "-m", "dvc", *command]
        done = subprocess.run(dvc, cwd=tmp_path, capture_output=True, text=True, check=True, env=wide)
    rows = done.stdout.splitlines()
    assert max(map(len, rows)) <= 120
    assert [row.split()[0] for row in rows] == [
        "Path",
        *(f"data/summary/{split}.json" for split in ("dev", "test_normal", "test_challenge")),
    ]
    assert len(rows[0].split()) <= 8, "columns"


ROW = {
    "task_id": "a",
    "token_ids": [5, 6],
    "policy_mask": [False, True],
    "turn_index": [-1, 0],
    "engine_logprobs": [0.0, -0.5],
    "sequence_begins": [0],
    "return": 0.5,
}


def test_a_rollout_in_several_pairs_has_an_advantage_only_if_all_are_alike(tmp_path: Path) -> None:
    """In this searched tree, rollout 0 is better twice, 1 worse once, 2 worse, better and worse."""
    pairs = [(0, 1), (0, 2), (2, 3), (4, 2)]
    rows = [
        ROW | {"rollout_index": index, "advantage": advantage, "pair": number}
        for number, pair in enumerate(pairs)
        for index, advantage in zip(pair, (1.0, -1.0), strict=True)
    ]
    write_rows(tmp_path / "batch.parquet", rows, TRAINING_BATCH)
    found = {index: value for (_, index), value in read_advantages(tmp_path / "batch.parquet").items()}
    assert found == {0: 1.0, 1: -1.0, 2: BY_TURN, 3: -1.0, 4: 1.0}
