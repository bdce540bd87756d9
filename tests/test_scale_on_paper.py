"""The simulation of many hosts, by hand, and its picture."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "benchmarks"))
    return import_module("scale_on_paper")


def iteration(paper: Any, **changes: Any) -> Any:
    """Return two hosts of two workers each, on a network of 100 bytes/s; nothing costs but what `changes` says."""
    free = dict.fromkeys(("begin", "take", "look", "put", "place"), 0.0)
    costs = paper.Costs(**free | {name: value for name, value in changes.items() if name in free})
    network = paper.Network(workers=2, bytes_per_s=100.0, way_s=0.0)
    return paper.Iteration(2, 8.0, changes.get("policy_bytes", 0.0), costs, network).run()


def test_where_nothing_costs_all_of_the_time_is_play(paper: Any) -> None:
    free = iteration(paper)
    assert (free.now, free.busy, free.share) == (8.0, 0.0, 1.0)


def test_the_pipelines_machine_begins_each_shard_and_takes_its_result(paper: Any) -> None:
    """4 begins of 1 s, 4 results of 0.25 s."""
    found = iteration(paper, begin=1.0, take=0.25)
    assert found.last_begun == 4 * 1.0
    assert found.busy == 4 * 1.25
    assert found.now == pytest.approx(found.last_begun + 8.0 + 0.25, abs=paper.POLL_S)


def test_a_host_fetches_the_policy_once_and_hosts_share_the_link(paper: Any) -> None:
    """500 bytes in 5 s for the first host, in 5 more for the second; each places them in 2 s."""
    found = iteration(paper, policy_bytes=500.0, place=2.0 / 500)
    assert found.last_begun == 5.0 + 5.0 + 2.0
    assert found.busy == 0


def test_the_policy_is_put_into_the_store_once(paper: Any) -> None:
    assert iteration(paper, policy_bytes=500.0, put=0.01).busy == 5.0


def test_the_least_shard_gives_the_share_that_is_asked_for(paper: Any) -> None:
    costs = paper.Costs(begin=0.01, take=0.03, look=1e-6, put=0.0, place=0.0)
    least = paper.least_shard_s(8, 0.0, costs)
    assert paper.Iteration(8, least, 0.0, costs).run().share >= paper.SHARE
    assert paper.Iteration(8, least / 1.1, 0.0, costs).run().share < paper.SHARE
    assert paper.least_shard_s(8, 0.0, replace(costs, take=0.3)) > 2 * least


def test_the_picture_is_of_the_measured_costs(paper: Any, tmp_path: Path) -> None:
    costs = paper.Costs.measured(json.loads((paper.RESULTS / "ray_costs.json").read_text()))
    paper.draw(costs, tmp_path / "scale.svg")
    assert (tmp_path / "scale.svg").read_text() == paper.PICTURE.read_text(), (
        "python tests/benchmarks/scale_on_paper.py"
    )
