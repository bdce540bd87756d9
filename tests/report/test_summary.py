"""What `dvc metrics show` lists."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tasks.core.config.params import Params
from tasks.core.interfaces.stage import StageContext
from tasks.report.summary import SplitSummary

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
