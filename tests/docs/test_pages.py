"""The pages keep the promises of docs/contributing.md, their Python runs, and their tables are those of git."""

import dataclasses
import importlib
import re
import shutil
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from mkdocs.config import load_config

from docs.hooks.commands import commands
from docs.hooks.knobs import kind_tables, tables
from flows.dag.stages import STAGES
from tasks.core.config.engine import ENGINES
from tasks.core.config.world import WORLDS
from tasks.core.evaluation.differences import BySeed, method_test
from tasks.core.pages.tables import SPLIT_NAMES, markdown_table
from tasks.core.records.comparison import NO_FINE_TUNING, Study
from tasks.core.records.documents import read_document
from tasks.core.study import rows, sections
from tasks.core.worlds.pocketworld import episode
from tasks.core.worlds.pocketworld.authoring import generate_specs
from tasks.core.worlds.pocketworld.demonstrations import TrustedRepl
from tasks.core.worlds.pocketworld.kind import WORLD, PocketworldConfig
from tasks.core.worlds.pocketworld.problem import build_problem

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = {"data", "docs", "flows", "tasks", "tests"}
ELSEWHERE = {"index.md", "changelog.md", "operations/security.md"}
"""Pages whose text stands in another file."""
NOT_SET = {"KNOB", "a.b", "world.KNOB", "world.my_world"}
"""Placeholders."""
README_LINES, README_WIDTH, PARAGRAPH_LINES = 140, 110, 6


@cache
def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True, check=True)
    return [Path(line) for line in listed.stdout.splitlines() if (ROOT / line).exists()]


PAGES = sorted(path for path in _tracked() if path.suffix == ".md" and path.parts[0] != "tests")
SITE = [page for page in PAGES if page.parts[0] == "docs" and str(page.relative_to("docs")) not in ELSEWHERE]


def _text(page: Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def _prose(page: Path) -> str:
    fenced = re.compile(r"^```.*?^```$|^    \S.*$", re.MULTILINE | re.DOTALL)
    return fenced.sub("", _text(page))


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_no_other_folder_is_at_the_top_level() -> None:
    folders = {path.parts[0] for path in _tracked() if len(path.parts) > 1}
    assert {folder for folder in folders if not folder.startswith(".")} == TOP_LEVEL


def test_the_readme_is_one_screen() -> None:
    lines = _text(Path("README.md")).splitlines()
    assert len(lines) <= README_LINES
    assert [line for line in lines if len(line) > README_WIDTH] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_relative_links_lead_to_files_and_headings(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        place, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (ROOT / page.parent / place).resolve() if place else ROOT / page
        if not file.exists() or (anchor and anchor not in _anchors(file.relative_to(ROOT))):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", [Path("README.md"), *SITE], ids=str)
def test_modules_scripts_and_files_that_a_page_names_exist(page: Path) -> None:
    text = _text(page)
    modules = {
        name.rstrip(".").replace(".", "/") for name in re.findall(r"python -m ((?:flows|tasks|tests)[\w.]+)", text)
    }
    files = set(re.findall(r"\b((?:flows|tasks|tests|docs)/[\w/]+\.(?:py|yaml|json|sh))\b", text))
    packages = set(re.findall(r"`((?:flows|tasks|tests)/[\w/]+/)`", text))
    assert [name for name in modules if not (ROOT / name).is_dir() and not (ROOT / f"{name}.py").exists()] == []
    named = [name for name in files | packages if not name.endswith(("/mine.yaml", "/NAME/"))]
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", [Path("README.md"), *SITE], ids=str)
def test_commands_that_a_page_names_exist(page: Path) -> None:
    known = {name.split()[1] for name, _ in commands()}
    code = re.findall(r"```.*?```|`[^`\n]+`", _text(page), re.DOTALL)
    assert {name for each in code for name in re.findall(r"\bloopline ([a-z]\w*)", each)} <= known


@cache
def _knobs() -> set[str]:
    """All knobs, and the sections that they lie in."""
    kinds = [*WORLDS.own_names(), *(name for name in ENGINES.own_names() if ENGINES.find(name).settings)]
    names = {
        knob.name
        for table in [*tables(), *(each for name in kinds for each in kind_tables(name))]
        for knob in table.knobs
    }
    return names | {name.rsplit(".", depth)[0] for name in names for depth in range(1, name.count(".") + 1)}


@pytest.mark.parametrize("page", [Path("README.md"), *SITE], ids=str)
def test_knobs_that_a_page_names_exist(page: Path) -> None:
    text = _text(page)
    sections = "|".join(sorted({name.partition(".")[0] for name in _knobs() if "." in name}))
    named = {*re.findall(rf"`((?:{sections})\.[\w.]+)\b(?!\.py)", text), *re.findall(r"(?:--set|-S) ([\w.]+)=", text)}
    assert {name for name in named if not name.startswith("tasks.core")} - _knobs() - NOT_SET == set()


@pytest.mark.parametrize("page", SITE, ids=str)
def test_a_page_begins_with_a_command_or_a_picture_or_a_warning(page: Path) -> None:
    text = re.sub(r"\A---\n.*?^---$", "", _text(page), flags=re.MULTILINE | re.DOTALL)
    title, first = [line for line in text.splitlines() if line.strip()][:2]
    assert title.startswith("# ")
    assert first.startswith(("```", "![", "**"))


@pytest.mark.parametrize("page", [Path("README.md"), *SITE], ids=str)
def test_no_paragraph_is_long(page: Path) -> None:
    breaks = [
        number
        for number, line in enumerate(["", *_prose(page).splitlines(), ""])
        if not line.strip() or line.startswith(("#", "|", "- ", "!")) or re.match(r"\d+\. ", line)
    ]
    assert max(end - begin for begin, end in pairwise(breaks)) <= PARAGRAPH_LINES + 1


def test_the_picture_of_the_pipeline_has_the_stages_of_the_main_job() -> None:
    drawn = set(re.findall(r">(\w+)[^<>]*</text>", _text(Path("docs/pictures/pipeline.svg"))))
    seldom = {"version_stages", "search_trees", "pair_turns"}
    assert {stage.name for stage in STAGES} - seldom <= drawn


def test_the_site_is_searched_from_its_folder_without_a_network() -> None:
    config = load_config(str(ROOT / "mkdocs.yml"))
    assert {"search", "offline"} <= {name.removeprefix("material/") for name in config.plugins}
    scripts = config.extra["polyfills"]
    assert any("iframe-worker" in script for script in scripts), "else the plugin loads it from unpkg.com"
    assert all((ROOT / "docs" / name).is_file() for name in [*scripts, *config.extra_css])


def test_an_equation_scrolls_where_it_is_wider_than_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "hooks"))  # as mkdocs does for its hooks
    site = importlib.import_module("docs.hooks.site")
    page = site.on_page_content('<div class="arithmatex">\\[x^2\\]</div><span class="arithmatex">\\(y\\)</span>')
    assert re.fullmatch(r'<div class="equation"><math.*</math></div><span class="equation"><math.*</math></span>', page)
    style = (ROOT / "docs" / "site" / "site.css").read_text(encoding="utf-8")
    assert ".equation{max-width:100%;overflow-x:auto" in style and "table:not([class]) code{word-break:normal" in style


SNIPPETS = {
    f"{page.name} {number}": code
    for page in PAGES
    if page.parts[0] == "docs" and "results" not in page.parts
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", _text(page), re.M | re.S))
}


def test_each_page_with_python_is_tried_here() -> None:
    assert sorted(SNIPPETS) == ["api.md 0", "extending.md 0", "program.md 0", "tracking.md 0"]


def test_the_names_of_the_reference_can_be_imported() -> None:
    exec(SNIPPETS["api.md 0"], {})


def test_an_exported_folder_loads_as_its_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "data/base_policies/pocket", tmp_path / "trained")
    monkeypatch.chdir(tmp_path)
    loaded: dict[str, Any] = {}
    exec(SNIPPETS["tracking.md 0"], loaded)
    assert len(loaded["tokenizer"]) == loaded["model"].config.vocab_size


def test_the_shaped_reward_counts_a_shorter_answer_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    methods: dict[str, Any] = {}
    exec(SNIPPETS["extending.md 0"], {**vars(episode), "dataclasses": dataclasses}, methods)
    monkeypatch.setattr(episode.PocketEpisode, "evaluate", methods["evaluate"])
    spec = next(spec for spec in generate_specs(2502, PocketworldConfig())["train"] if build_problem(spec).answer)
    problem = build_problem(spec)
    scores = []
    for answer in (str(problem.answer), "x" * 300):
        played = episode.PocketEpisode(problem, TrustedRepl())
        played.step(f"```python\napis.supervisor.complete_task(answer={answer!r})\n```")
        scores.append(played.evaluate())
    assert all(found.score is not None and 0 <= found.score <= 1 for found in scores)
    short, long = ((found.score or 0.0) - 0.9 * found.pass_share for found in scores)
    assert short > long == 0


RESULTS = ROOT / "docs" / "results"
OUTCOMES = RESULTS / "outcomes"
WORLD_SEED = 2502
EVERY = {f"{verb}_every" for verb in ("delete", "update", "message", "copy")}
SHOWN = {"create", "ask_field", "count", "total", "create_and_count", "extreme", *EVERY}
"""Templates of pocketworld. The default's base policy imitated play of these and of no others."""


@pytest.mark.parametrize("name", sorted(file.stem for file in OUTCOMES.glob("*.json")))
def test_a_page_has_the_tables_that_its_outcomes_give(name: str) -> None:
    study = read_document(OUTCOMES / f"{name}.json", Study)
    page = (RESULTS / f"{name.partition('-')[0]}.md").read_text(encoding="utf-8")
    assert [
        section.title for section in sections(study)[:-1] if markdown_table(section.heads, section.rows) not in page
    ] == []


def test_the_main_job_tells_demonstrated_templates_from_others() -> None:
    study = read_document(OUTCOMES / "main_job.json", Study)
    assert markdown_table(*by_template(study)) in (RESULTS / "main_job.md").read_text(encoding="utf-8")


def by_template(study: Study) -> tuple[list[str], list[list[str]]]:
    """The gain of `loop` in TGC on demonstrated templates (or their kind in held-out apps) and on others."""
    shown = {
        (str(split), spec.task_id): spec.template.removeprefix("held_out_") in SHOWN
        for split, specs in generate_specs(WORLD_SEED, WORLD.settings()).items()
        for spec in specs
    }
    table = []
    for split, title in SPLIT_NAMES.items():
        for wanted, kind in ((True, "demonstrated templates"), (False, "other templates")):
            base, loop = (
                {
                    seed: {task: mean for task, mean in means.items() if shown[split, task[1]] == wanted}
                    for seed, means in rows(study)[method][split, "tgc"].items()
                }
                for method in (NO_FINE_TUNING, "loop")
            )
            test = method_test(base, loop, study.confidence)
            assert test is not None
            interval = "" if test.low is None else f" ({test.low:+.1f} to {test.high:+.1f})"
            cells = [str(len(loop[min(loop)])), _mean(base), _mean(loop), f"{test.difference:+.1f}{interval}"]
            table.append([f"{title}, {kind}", *cells])
    return ["TGC, percent", "tasks", "base", "LOOP", "gain"], table


def _mean(by_seed: BySeed) -> str:
    return f"{100 * fmean(mean for means in by_seed.values() for mean in means.values()):.1f}"
