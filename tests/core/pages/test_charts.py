"""Ticks by hand and as a property; charts are well-formed whatever the numbers are."""

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.pages.charts import line_chart, nice_ticks

numbers = st.floats(-1e9, 1e9, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-9)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (0.31, 0.78, [0.3, 0.4, 0.5, 0.6, 0.7, 0.8]),
        (5, 5, [4, 5, 6]),
        (0, 0, [-0.2, 0, 0.2]),
    ],
)
def test_ticks_are_round_and_enclose(low: float, high: float, ticks: list[float]) -> None:
    found = nice_ticks(low, high)
    assert found[0] <= low <= high <= found[-1]
    if (low, high) not in ((5, 5), (0, 0)):
        assert found == pytest.approx(ticks)


@given(numbers, numbers)
def test_ticks_always_enclose_and_are_few(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    ticks = nice_ticks(low, high)
    slack = 1e-6 * (abs(low) + abs(high) + 1e-9)
    assert ticks[0] <= low + slack
    assert high - slack <= ticks[-1]
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(set(ticks))
    assert all(math.isfinite(tick) for tick in ticks)


@pytest.mark.parametrize(
    "values", [(0.30000000000000004, 0.3), (3e-14,), (0.0, 2e-13), (5e-324,), (-1e-200, 1e-200), (1e300, -1e300)]
)
def test_values_that_rounding_or_their_size_brings_together_are_drawn(values: tuple[float, ...]) -> None:
    figure = ElementTree.fromstring(line_chart("return", "", {"mean": list(enumerate(values))}, 2))
    points = figure.find(".//polyline").attrib["points"].split()  # type: ignore[union-attr]
    assert len(points) == len(values) and all(10 <= float(point.split(",")[1]) <= 174 for point in points)


def test_a_line_goes_through_its_points() -> None:
    figure = ElementTree.fromstring(line_chart("return", "", {"mean": [(0, 0.0), (5, 0.5), (10, 1.0)]}, 10, [5], 10))
    assert figure.find(".//polyline").attrib["points"] == "46.0,174.0 198.0,92.0 350.0,10.0"  # type: ignore[union-attr]
    assert figure.find(".//line[@class='mark']").attrib["x1"] == "198.0"  # type: ignore[union-attr]
    assert figure.find(".//line[@class='chosen']").attrib["x1"] == "350.0"  # type: ignore[union-attr]
    assert [title.text for title in figure.iter("title")][1] == "mean, iteration 5: 0.5"


def test_names_are_escaped_and_an_empty_chart_says_so() -> None:
    figure = ElementTree.fromstring(line_chart("<b>", "&", {"<i>": []}, 10))
    assert figure.find(".//text").text == "no figures"  # type: ignore[union-attr]


@given(st.lists(st.tuples(st.integers(0, 20), numbers), min_size=1, max_size=20))
def test_every_chart_is_well_formed(points: list[tuple[int, float]]) -> None:
    ElementTree.fromstring(line_chart("t", "u", {"a": points, "b": []}, 20))
