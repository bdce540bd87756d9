"""Ticks by hand and as a property; charts are well-formed whatever the numbers are."""

import math
import re
from importlib.resources import files
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.pages.charts import COLOURS, line_chart, nice_ticks

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_series_has_a_colour_of_its_own(scheme: str) -> None:
    """The third series was drawn black, which is nothing on a dark page."""
    style = (files("tasks.core.pages") / "page.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--([a-z0-9]+):([^;}]+)", block)) for block in re.findall(r":root\{([^}]*)\}", style)[:2]
    )
    variables = light if scheme == "light" else light | dark
    series = {f"method {number}": [(0, 0.0), (1, float(number))] for number in range(COLOURS + 1)}
    drawn = line_chart("return", "", series, 1, bands={name: [(0, 0.0, 1.0)] for name in series})
    used = re.findall(r'class="(?:key |band )?(s\d+)"', drawn)
    colours = set()
    for name in used:
        rules = (
            f"g.{name} polyline{{stroke",
            f"g.{name} circle{{fill",
            f".band.{name}{{fill",
            f".key.{name}::before{{background",
        )
        for rule in rules:
            (variable,) = re.findall(re.escape(rule) + r":var\(--(\w+)\)", style)
            value = variables[variable]
            colours.add(variables[value[6:-1]] if value.startswith("var") else value)
    assert len(colours) == COLOURS == len(set(used)) and len(used) == 3 * len(series)
    assert all(_contrast(colour, variables["card"]) >= 3 for colour in colours), "WCAG 1.4.11: 3 to 1 for graphics"


def _contrast(one: str, other: str) -> float:
    brighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_what_a_chart_means_is_shown_at_its_title() -> None:
    figure = ElementTree.fromstring(line_chart("entropy", "nats", {}, 3, about='How "undecided" it is.'))
    assert figure.find("figcaption/span").attrib["title"] == 'How "undecided" it is.'  # type: ignore[union-attr]
