"""The squares of the heat map, by hand."""

from xml.etree import ElementTree

from tasks.report.heat_map import Cell, heat_map


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
