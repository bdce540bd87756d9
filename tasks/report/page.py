"""index.html: the parts of the report put together. Its scripts are in viewer/, its style is in tasks/core/pages."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from tasks.core.config.params import Params
from tasks.core.pages.tables import behaviour_table, budget_notes, percent, score_table, usage_table, warning_list
from tasks.core.records.scores import Scores, Selection
from tasks.core.records.training import CollapseWarning
from tasks.report.curves import RunStats, TaskProgress, charts, coverage_curves, heat_map

SCRIPTS = ("rollout_index", "transcript", "rollout_list", "heat_map", "alignment", "comparison", "opening")
"""The parts of viewer/ in the order in which the page runs them; they share the object that the first part makes."""


def render_page(
    params: Params,
    stats: RunStats,
    selection: Selection,
    scores: Sequence[Scores],
    warnings: Sequence[CollapseWarning],
    progress: TaskProgress,
) -> str:
    """Return the whole page as HTML that loads only `rollouts/*.js` next to it, and `../traces.js`."""
    marks = sorted({warning.iteration for warning in warnings})
    coverage = coverage_curves(progress, params.iterations)
    chosen, metric = int(selection.iteration[1:]), params.world.settings.own_metric
    unit = "share of tests" if metric is None or metric.of == "success" else f"{metric.name}, as a share"
    drawn = charts(stats, params.iterations, marks, chosen, coverage, unit)
    sections = {
        "Scores": score_table(scores) + budget_notes(scores) + usage_table([*stats.evaluations.values(), *scores]),
        "Behaviour": behaviour_table(scores),
        "Warnings": warning_list(warnings, stats.notes),
        "Learning curves": f'<div class="charts">{drawn}</div><p class="hint">{_LINES}</p>',
        "Tasks": heat_map(progress, params.iterations),
        "Rollouts": _asset("rollouts.html"),
        "Compare": _asset("comparison.html"),
    }
    body = "".join(f'<section id="{t.lower().split()[-1]}"><h2>{t}</h2>{c}</section>' for t, c in sections.items())
    links = "".join(f'<a href="#{title.lower().split()[-1]}">{title}</a>' for title in sections)
    scripts = "".join(_asset(f"viewer/{name}.js") for name in SCRIPTS)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(params.world.name)}: loopline report</title>"
        f"<style>{_asset('page.css', 'tasks.core.pages')}</style></head>"
        f"<body><header>{_header(params, selection)}<nav>{links}</nav></header><main>{body}</main>"
        '<script src="rollouts/index.js"></script><script src="../traces.js"></script>'
        f'<script>"use strict";\n{scripts}</script></body></html>\n'
    )


def _header(params: Params, selection: Selection) -> str:
    facts = {
        "profiles": " ".join(params.profiles),
        "world": params.world.name,
        "iterations": str(params.iterations),
        "seed": str(params.seed),
        "collection": f"asynchronous, staleness {stale}" if (stale := params.collection.staleness) else "on-policy",
        "selected": f"iteration {int(selection.iteration[1:])}",
        "dev TGC / SGC": f"{selection.dev_tgc:.1f} / {selection.dev_sgc:.1f}",
        **_without_luck(selection),
        "adapter": selection.adapter_digest[:12],
    }
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f"<h1>loopline</h1><dl>{items}</dl>"


def _without_luck(selection: Selection) -> dict[str, str]:
    corrected = selection.corrected
    if corrected is None:
        return {}
    scores = f"{percent(corrected.dev_tgc, corrected.dev_tgc_se)} / {percent(corrected.dev_sgc, corrected.dev_sgc_se)}"
    return {f"without the luck of being the best of {len(selection.candidates)}": scores}


def _asset(name: str, package: str = "tasks.report") -> str:
    return (files(package) / name).read_text(encoding="utf-8")


_LINES = (
    "Grey line: the selected iteration. Dashed red: a warning. A title tells what its chart means when the pointer "
    "rests on it; docs/metrics.md has all of them."
)
