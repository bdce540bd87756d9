"""Line charts as inline SVG: no library, no script, the same bytes for the same numbers."""

import math
import sys
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 36
Points = Sequence[tuple[int, float]]
"""(iteration, value), by iteration."""
Band = Sequence[tuple[int, float, float]]
"""(iteration, low, high), by iteration."""
COLOURS = 6
"""Series with a colour of their own (page.css); the next ones begin again."""
_ROUNDING = 1e-9
"""Values whose relative difference is smaller count as equal."""


def line_chart(
    title: str,
    unit: str,
    series: Mapping[str, Points],
    last: int,
    marks: Sequence[int] = (),
    chosen: int | None = None,
    bands: Mapping[str, Band] = {},
    about: str = "",
) -> str:
    """Return a figure with one line per series over iterations 0 .. `last`; without points it says "no figures".

    `marks` are iterations with a warning, `chosen` is the selected iteration; `bands` lie behind the lines of the same
    name. `about` is shown when the pointer rests on the title.
    """
    values = [value for points in series.values() for _, value in points]
    values += [bound for band in bands.values() for _, *bounds in band for bound in bounds]
    if not values:
        body = f'<text class="none" x="{WIDTH / 2}" y="{HEIGHT / 2}">no figures</text>'
    else:
        ticks = nice_ticks(min(values), max(values))
        body = _axes(ticks, last) + _marks("mark", marks, last)
        body += _marks("chosen", () if chosen is None else (chosen,), last)
        body += "".join(_band(i, bands.get(name, ()), ticks, last) for i, name in enumerate(series))
        body += "".join(_line(i, name, points, ticks, last) for i, (name, points) in enumerate(series.items()))
    legend = "".join(
        f'<span class="key s{i % COLOURS}">{escape(name)}</span>' for i, name in enumerate(series) if len(series) > 1
    )
    hover = f' class="about" title="{escape(about)}"' if about else ""
    caption = f"<span{hover}>{escape(title)}</span> <small>{escape(unit)}</small><span>{legend}</span>"
    return (
        f"<figure><figcaption>{caption}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{body}</svg></figure>'
    )


def nice_ticks(low: float, high: float) -> list[float]:
    """Return 3 to 7 round numbers (1, 2 or 5 times a power of ten apart) that enclose [low, high]."""
    size = max(abs(low), abs(high))
    span = high - low if high - low > _ROUNDING * size else size
    span = span if span > sys.float_info.min else 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if first == last:
        first, last = first - 1, last + 1
    digits = 1 - math.floor(math.log10(step))
    return [round(index * step, digits) for index in range(first, last + 1)]


def _axes(ticks: list[float], last: int) -> str:
    rows = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_y(t, ticks):.1f}" y2="{_y(t, ticks):.1f}"/>'
        f'<text class="y" x="{LEFT - 6}" y="{_y(t, ticks) + 3.5:.1f}">{t:g}</text>'
        for t in ticks
    )
    columns = "".join(
        f'<text class="x" x="{_x(t, last):.1f}" y="{HEIGHT - 18}">{t:g}</text>'
        for t in nice_ticks(0, last)
        if t <= last and t == int(t)
    )
    name = f'<text class="x" x="{(WIDTH + LEFT - RIGHT) / 2:g}" y="{HEIGHT - 3}">iteration</text>'
    return f'<g class="axes">{rows}{columns}{name}</g>'


def _marks(kind: str, marks: Sequence[int], last: int) -> str:
    places = [f"{_x(iteration, last):.1f}" for iteration in marks]
    return "".join(f'<line class="{kind}" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>' for x in places)


def _line(index: int, name: str, points: Points, ticks: list[float], last: int) -> str:
    points_at = [(f"{_x(i, last):.1f}", f"{_y(value, ticks):.1f}", i, value) for i, value in points]
    path = " ".join(f"{x},{y}" for x, y, _, _ in points_at)
    radius = 2.2 if len(points) <= 40 else 1.4
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="{radius}"><title>{escape(name)}, iteration {i}: {value:.4g}</title></circle>'
        for x, y, i, value in points_at
    )
    return f'<g class="s{index % COLOURS}"><polyline points="{path}"/>{dots}</g>'


def _band(index: int, band: Band, ticks: list[float], last: int) -> str:
    lower = [f"{_x(i, last):.1f},{_y(low, ticks):.1f}" for i, low, _ in band]
    upper = [f"{_x(i, last):.1f},{_y(high, ticks):.1f}" for i, _, high in band]
    return f'<polygon class="band s{index % COLOURS}" points="{" ".join([*lower, *reversed(upper)])}"/>' if band else ""


def _x(iteration: float, last: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * iteration / max(last, 1)


def _y(value: float, ticks: list[float]) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (ticks[-1] - value) / (ticks[-1] - ticks[0])
