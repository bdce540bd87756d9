"""The whole report of a small run: data, page, bytes, and refused artifacts."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config.collection import ChangedLimits
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.interfaces.stage import StageContext
from tasks.core.pages.tables import budget_notes, gain, score_table
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import ArtifactError, digest
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.scores import Evaluation, RunsScores, Scores
from tasks.core.records.tables import read_table, write_table
from tasks.core.records.training import UpdateTimings
from tasks.report import report
from tasks.report.curves import read_run_stats
from tests.finished_run import scores, training_budget


def data(context: StageContext, name: str, variable: str = "loopline_rollouts") -> dict[str, Any]:
    """Return the JSON that a script assigns to a variable, by key."""
    lines = (context.layout.report / "rollouts" / f"{name}.js").read_text().splitlines()
    assignments = [re.fullmatch(r"\(window\.(\w+)=window\.\w+\|\|\{\}\)\[(\".*?\")\]=(.*);", line) for line in lines]
    assert all(assignments)
    return {json.loads(match[2]): json.loads(match[3]) for match in assignments if match and match[1] == variable}


def text_of(content: dict[str, Any], row: int) -> list[tuple[int, str]]:
    return [(turn, content["texts"][place]) for turn, _, place in content["rollouts"][row]["segments"]]


def test_a_rollout_is_cut_into_turns_and_observations(reported_run: StageContext) -> None:
    content = data(reported_run, "i001")["i001"]
    segments = text_of(content, 1)
    assert [turn for turn, _ in segments] == [-1, 0, -1, 1]
    assert segments[0][1] == "<|im_start|>user\nPay back what task 0 says.<|im_end|>\n<|im_start|>assistant\n"
    assert segments[1][1].startswith("I pay my friend")
    assert segments[1][1].endswith("<|im_end|>")
    assert segments[3][1] == "```python\napis.supervisor.complete_task()\n```<|im_end|>"
    assert content["texts"].count(segments[0][1]) == 1, "a prompt is stored once for all rollouts of its task"


def test_the_index_lists_the_trained_rollouts_with_their_advantages(reported_run: StageContext) -> None:
    index = data(reported_run, "index", "loopline_index")
    assert list(index) == [f"i00{i}" for i in range(1, 9)] + [f"dev_i00{i}" for i in range(0, 9, 2)] + [
        "test_normal",
        "test_challenge",
    ]
    columns = index["i003"]["columns"]
    pairs = set(zip(columns["return"], columns["advantage"], strict=True))
    assert pairs == {(1.0, 0.5), (0.5, None), (0.0, -0.5)}
    assert columns["end_reason"][-1] == "turn_limit"
    scored = index["test_normal"]["columns"]
    assert "advantage" not in scored
    assert sorted(set(scored["policy"])) == ["base", "selected"]
    assert len(scored["policy"]) == 12, "of two evaluation runs the first is shown"
    assert {name: len(values) for name, values in scored.items()} == dict.fromkeys(scored, 12)


def test_the_index_holds_the_instruction_of_every_task(reported_run: StageContext) -> None:
    by_split = data(reported_run, "index", "loopline_tasks")
    assert {split: len(texts) for split, texts in by_split.items()} == {
        "train": 105,
        "dev": 60,
        "test_normal": 168,
        "test_challenge": 417,
    }
    assert by_split["train"]["train_001_1"].startswith("Add a payment with name")


def test_equal_artifacts_give_equal_bytes_and_wall_clock_figures_change_none(finished_run: StageContext) -> None:
    report(finished_run)
    first = digest(finished_run.layout.report)
    write_document(finished_run.layout.update_timings("i003"), UpdateTimings(tokens_per_s=1.0))
    report(finished_run)
    assert digest(finished_run.layout.report) == first


class Loads(HTMLParser):
    """The addresses that a page asks a browser to fetch, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def test_the_page_shows_scores_and_signs_and_loads_nothing_from_outside(reported_run: StageContext) -> None:
    page = Loads()
    page.feed((reported_run.layout.report / "index.html").read_text())
    assert [address for address in page.addresses if not address.startswith("#")] == [
        "rollouts/index.js",
        "../traces.js",
    ]
    assert "http" not in page.text.replace("http://www.w3.org", "")
    for shown in ("30.0 ± 2.5", "70.0 ± 2.0", "+40.0 ± 3.1", "−10.0", "25.0 %", "12.5 %", "45.0 ± 5.0 / 20.0"):  # noqa: RUF001
        assert shown in page.text
    assert "gradient_spike: grad_norm is 50 (limit " in page.text
    assert "every advantage is zero <b>" in page.text, "escaped, so that the parser sees it as text"
    assert "iteration 3  world errors took 4 rollouts of 2 groups" in page.text
    assert page.text.count("world errors took") == 2, "the note, and the chart's title"


def test_every_curve_is_marked_at_a_warning(reported_run: StageContext) -> None:
    page = (reported_run.layout.report / "index.html").read_text()
    told = page.partition('<ul class="warnings">')[2].partition("</ul>")[0]
    warned = {int(number) for number in re.findall(r'<li class="sign"><b>iteration (\d+)</b>', told)}
    assert 7 in warned, "the spike of the gradient"
    curves = [curve for curve in re.findall(r"<figure>.*?</figure>", page) if "<polyline" in curve]
    assert len(curves) >= 10
    for curve in curves:
        assert len(re.findall(r'<line class="mark"', curve)) == len(warned)
        assert len(re.findall(r'<line class="chosen"', curve)) == 1


def test_no_text_of_an_agent_can_end_a_script(reported_run: StageContext) -> None:
    for file in sorted(reported_run.layout.report.rglob("*.js")):
        content = file.read_text()
        assert content.isascii()
        assert "<" not in content
    assert "owned" in (reported_run.layout.report / "rollouts" / "i001.js").read_text()


def test_a_broken_artifact_is_named_and_the_older_report_stays(finished_run: StageContext) -> None:
    report(finished_run)
    first = digest(finished_run.layout.report)
    finished_run.layout.rollouts("i004").write_bytes(b"PAR1 half")
    with pytest.raises(ArtifactError, match=r"i004/rollouts\.parquet: damaged"):
        report(finished_run)
    assert digest(finished_run.layout.report) == first
    assert [path.name for path in finished_run.layout.data.iterdir() if "tmp" in path.name] == []


@pytest.mark.parametrize(
    "name", ["policy/tokenizer.json", "world/train.jsonl", "selection.json", "iterations/i002/metrics.json"]
)
def test_a_missing_artifact_is_named(finished_run: StageContext, name: str) -> None:
    (finished_run.layout.data / name).unlink()
    with pytest.raises(ArtifactError, match=rf"{Path(name).name}: missing"):
        report(finished_run)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(0.04, None, "0.0"), (-0.04, 1.0, "0.0 ± 1.0"), (3.25, None, "+3.2"), (-3.0, 0.5, "−3.0 ± 0.5")],  # noqa: RUF001
)
def test_a_difference_carries_its_sign(value: float, error: float | None, text: str) -> None:
    assert gain(value, error) == text


def test_all_runs_of_a_task_are_shown_where_there_are_several() -> None:
    figures = {"pass_hat": 60.0, "pass_hat_se": 4.0, "best_of": 85.0, "best_of_se": None}
    some = RunsScores(**figures, base_pass_hat=20.0, base_best_of=90.0)
    table = score_table([scores("test_normal", per_k={"1": some, "3": some})])
    assert "<th>Test-N pass^3, all of 3 runs</th><td>20.0</td><td>60.0 ± 4.0</td><td>+40.0</td>" in table
    assert "<th>Test-N best@3, one of 3 runs</th><td>90.0</td><td>85.0</td><td>−5.0</td>" in table  # noqa: RUF001
    assert "pass^" not in score_table([scores("test_normal", per_k={"1": some})])


def test_void_rollouts_are_shown_with_tgc() -> None:
    whole, broken = score_table([scores("test_normal")]), score_table([scores("test_normal", void_rollouts=1)])
    assert "Test-N TGC, 6 tasks</th>" in whole
    assert "Test-N TGC, 6 tasks (1 rollouts that the world broke count as failures)</th>" in broken


def test_both_budgets_are_named_in_the_scores() -> None:
    plain = scores("test_normal")
    again = training_budget(plain, tgc=60.0, tgc_gain=30.0, tgc_gain_se=2.5, void_rollouts=1)
    both = plain.model_copy(update={"training_budget": again})
    table = score_table([both])
    assert table.startswith(score_table([plain]).removesuffix("</tbody></table></div>"))
    assert (
        "<th>Test-N TGC at the training budget, 6 tasks (1 rollouts that the world broke count as failures)</th>"
        "<td>30.0 ± 2.0</td><td>60.0 ± 2.0</td><td>+30.0 ± 2.5</td>"
    ) in table
    assert "<th>Test-N SGC at the training budget, 2 scenarios</th><td>10.0 ± 1.0</td>" in table
    assert budget_notes([both, both]) == (
        '<p class="fine">Training budget: 20 turns, 1,500 tokens per turn, 3,000 per observation. '
        "Test budget, of all other rows: 40 turns, 1,500 tokens per turn, 3,000 per observation.</p>"
    )


def test_a_training_budget_that_is_the_test_budget_is_a_note_alone() -> None:
    plain = scores("test_normal")
    same = plain.model_copy(update={"training_budget": training_budget(plain, turns=40)})
    assert score_table([same]) == score_table([plain]) and budget_notes([plain]) == ""
    assert "The training budget is the test budget (40 turns, " in budget_notes([same])


def test_rollouts_at_the_training_budget_are_shown_apart(finished_run: StageContext) -> None:
    layout, params = finished_run.layout, finished_run.inputs
    scoring = params.scoring.model_copy(update={"at_training_budget": True, "limits": ChangedLimits(max_turns=80)})
    for split in TEST_SPLITS:
        found = read_document(layout.score(split), Scores)
        write_document(layout.score(split), found.model_copy(update={"training_budget": training_budget(found)}))
        table = read_table(layout.score_rollouts(split), SCORED_ROLLOUTS)
        kept = table.slice(0, 4)
        write_table(layout.training_budget_rollouts(split), kept, SCORED_ROLLOUTS)
    run = replace(finished_run, inputs=params.model_copy(update={"scoring": scoring}))
    report(run)
    index = data(run, "index", "loopline_index")
    assert index["test_normal_training_budget"]["label"] == "test_normal at the training budget"
    assert len(index["test_normal_training_budget"]["columns"]["task_id"]) < len(
        index["test_normal"]["columns"]["task_id"]
    )
    assert len(index["test_normal"]["columns"]["policy"]) == 12
    assert "Training budget: 20 turns, " in (layout.report / "index.html").read_text()


def test_a_dev_evaluation_with_void_rollouts_is_a_note(finished_run: StageContext) -> None:
    layout = finished_run.layout
    played = read_document(layout.evaluation("i004"), Evaluation)
    write_document(layout.evaluation("i004"), played.model_copy(update={"void_rollouts": 2}))
    notes = read_run_stats(layout, finished_run.inputs).notes
    assert (4, "dev TGC: 2 rollouts that the world broke count as failures") in notes
