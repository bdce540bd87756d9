"""A finished run as a study reads it."""

import yaml

from tasks.core.config.params import Params
from tasks.core.interfaces.stage import StageContext
from tasks.core.study.finished_run import RunLabel, read_finished_run


def test_a_run_brings_its_outcomes_by_task(finished_run: StageContext[Params]) -> None:
    layout, params = finished_run.layout, finished_run.inputs
    (layout.root / "params.yaml").write_text(yaml.safe_dump(params.model_dump(mode="json")))
    found = read_finished_run(layout.root, RunLabel("loop", 0, "loopline configure"))
    record = found.record
    assert (record.selected, record.rollouts, record.optimizer_steps) == ("i002", 192, 64)
    assert [iteration for iteration, _ in record.dev_tgc] == [0, 2, 4, 6, 8]
    assert found.tasks["test_normal"].split()[:4] == [f"s0/train_001_{n}" for n in (1, 2, 3)] + ["s1/train_002_1"]
    assert record.solved["test_challenge"] == dict.fromkeys(("base", "selected"), ("100110", "100110"))
