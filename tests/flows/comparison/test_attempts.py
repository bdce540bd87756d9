"""Cost of a study's run, over attempts with the same and with other code and parameters."""

from pathlib import Path

import pytest

from flows.comparison.attempts import Cost, MadeFrom, Meter, read_cost, write_cost

MADE_FROM = MadeFrom("code", "params", "commit")


@pytest.mark.parametrize(
    ("made_from", "adds_up"),
    [
        (MadeFrom("code", "params", "another commit"), True),
        (MadeFrom("other code", "params", "commit"), False),
        (MadeFrom("code", "other params", "commit"), False),
    ],
)
def test_only_attempts_of_the_same_code_and_parameters_add_up(
    made_from: MadeFrom, adds_up: bool, tmp_path: Path
) -> None:
    (tmp_path / ".loopline").mkdir()
    write_cost(tmp_path, Cost(1000.0, 500.0, MADE_FROM))
    cost = Meter(tmp_path, made_from).read()
    assert (cost.wall_s >= 1000, cost.cpu_s >= 500) == (adds_up, adds_up)
    assert read_cost(tmp_path) == cost and cost.made_from == made_from


def test_a_cost_of_an_older_format_is_read_and_never_added_to(tmp_path: Path) -> None:
    (tmp_path / ".loopline").mkdir()
    (tmp_path / ".loopline" / "cost.json").write_text('{"wall_s": 1000.0, "cpu_s": 500.0}')
    assert read_cost(tmp_path) == Cost(1000.0, 500.0)
    assert Meter(tmp_path, MADE_FROM).read().wall_s < 1000
