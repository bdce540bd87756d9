"""The stage filter_tasks on the built-in world."""

from pathlib import Path

import pytest

from tasks.core.config.collection import TaskFilterConfig
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import TaskFilterInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world_kind import prepare_world_folder
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import TASKS
from tasks.core.records.tables import read_table
from tasks.filter_tasks import FilterError, filter_tasks


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    layout = Layout(tmp_path_factory.mktemp("tree"))
    prepare_world_folder(context(layout).inputs.world, layout.world)
    return layout


def context(layout: Layout, **tasks: object) -> StageContext[TaskFilterInputs]:
    config = TaskFilterConfig.model_validate(tasks)
    params = Params(iterations=1, tasks=config)
    return StageContext(layout, TaskFilterInputs.of(params))


def test_the_built_in_world_keeps_the_papers_proportions(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    filter_tasks(context(layout))
    rows = read_table(layout.tasks, TASKS).to_pylist()
    assert len(rows) == 72
    assert len({row["scenario_id"] for row in rows}) == 24
    assert {row["difficulty"] for row in rows} == {1, 2}
    assert sum(row["weight"] for row in rows if row["difficulty"] == 1) == pytest.approx(0.5)
    assert "kept 72 of 105 training tasks (24 of 35 scenarios)" in capsys.readouterr().out


def test_a_denylisted_id_goes_and_an_unknown_one_leaves_the_old_artifact(layout: Layout) -> None:
    filter_tasks(context(layout))
    first = read_table(layout.tasks, TASKS)["task_id"][0].as_py()
    filter_tasks(context(layout, denylist=[first]))
    kept = layout.tasks.read_bytes()
    assert first not in read_table(layout.tasks, TASKS)["task_id"].to_pylist()
    with pytest.raises(FilterError, match=r"tasks\.denylist: the world has no task nowhere_1"):
        filter_tasks(context(layout, denylist=["nowhere_1"]))
    assert layout.tasks.read_bytes() == kept


def test_a_missing_world_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=str(tmp_path / "data" / "world")):
        filter_tasks(context(Layout(tmp_path)))
