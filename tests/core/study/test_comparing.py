"""Finished runs -> the study's document, tables and page, on outcomes made by hand."""

import csv
import io
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tasks.core.config.splits import TEST_SPLITS
from tasks.core.evaluation.tgc_sgc import Outcome, sgc, tgc
from tasks.core.records.monitoring import CollapseWarning
from tasks.core.records.study import CurvePoint, SplitScore, Study, StudyRun
from tasks.core.study.comparing import compare
from tasks.core.study.finished_run import FinishedRun
from tasks.core.study.page import DRIFT_NOTE, drift_heads, drift_rows, markdown, study_page
from tasks.core.study.tables import (
    NO_WARNING,
    cost_rows,
    difference_rows,
    methods_csv,
    ordering_rows,
    paper_rows,
    runs_csv,
    score_rows,
    warning_rows,
)
from tests.finished_run import scores, training_budget


def outcomes(solved: str) -> list[Outcome]:
    """One per digit, two tasks to a scenario; 1: solved."""
    return [Outcome(f"t{i}", f"s{i // 2}", 1, 0, digit == "1") for i, digit in enumerate(solved)]


def run(
    method: str,
    seed: int,
    solved: str,
    rollouts: int = 48,
    world: str = "pocketworld",
    base: str = "1000",
    **knobs: str,
) -> FinishedRun:
    """`knobs` with two underscores for a dot."""
    played = {"selected": outcomes(solved), "base": outcomes(base)}
    scores = {p: SplitScore(tgc=tgc(o).value, sgc=sgc(o).value, tasks=len(o)) for p, o in played.items()}
    record = StudyRun(
        method=method,
        seed=seed,
        experiment=f"study-{method}-s{seed}",
        command=f"loopline configure {method}",
        selected="i001",
        dev_tgc=50.0,
        scores=dict.fromkeys(TEST_SPLITS, scores["selected"]),
        base_scores=dict.fromkeys(TEST_SPLITS, scores["base"]),
        rollouts=rollouts,
        tokens=1000,
        optimizer_steps=3,
        wall_s=60.0,
        cpu_s=90.0,
        curve=(
            CurvePoint(iteration=0, mean_return=None, dev_tgc=25.0),
            CurvePoint(iteration=1, mean_return=0.5, dev_tgc=50.0),
        ),
    )
    named = {"world.name": world} | {name.replace("__", "."): value for name, value in knobs.items()}
    return FinishedRun(record, {(s, p): o for s in TEST_SPLITS for p, o in played.items()}, named)


def study(*runs: FinishedRun) -> Study:
    return compare("study", "loop", runs, 0.95, "c" * 40)


def test_means_spreads_and_differences_by_hand() -> None:
    found = study(run("loop", 0, "1100"), run("loop", 1, "1110"), run("grpo", 0, "1000"), run("grpo", 1, "1100"))
    assert score_rows(found)[1][0] == "loop"
    loop = next(s for s in found.scores if (s.method, s.split, s.metric) == ("loop", "test_normal", "tgc"))
    assert (loop.mean, loop.spread, loop.seeds) == (62.5, pytest.approx(12.5 * 2**0.5), 2)
    assert score_rows(found)[1][1] == "62.5 ± 17.7"
    sgc_of_loop = next(s for s in found.scores if (s.method, s.metric) == ("loop", "sgc"))
    assert sgc_of_loop.mean == 50
    base = next(s for s in found.scores if (s.method, s.metric) == ("nft", "tgc"))
    assert (base.mean, base.spread) == (25, 0)
    grpo = next(d for d in found.differences if (d.method, d.split, d.metric) == ("grpo", "test_normal", "tgc"))
    assert (grpo.difference, grpo.seeds, grpo.scenarios) == (-25, 2, 2)
    assert found.notes == ()


def test_one_seed_has_no_spread_and_a_difference_without_a_test() -> None:
    found = study(run("loop", 0, "1100"), run("grpo", 0, "1000"))
    assert score_rows(found)[1] == ("loop", "50.0", "50.0", "50.0", "50.0")
    assert difference_rows(found)[1][1:3] == ("1", "-25.0")
    assert found.notes[0].startswith("One seed ranks nothing") and "nft and loop, grpo and loop" in found.notes[0]


def test_holms_correction_counts_those_that_are_tested() -> None:
    """c is tested. a has one seed, and b no spread: neither p makes c's larger."""
    runs = [run("loop", 0, "11110000", base="11110000"), run("loop", 1, "11110100", base="11110100")]
    runs += [run("a", 0, "10100000"), run("b", 0, "01010000"), run("b", 1, "01010001")]
    runs += [run("c", 0, "11000000"), run("c", 1, "10010000")]
    found = {d.method: d for d in study(*runs).differences if (d.split, d.metric) == ("test_normal", "tgc")}
    assert {name: one.corrected_p_value is None for name, one in found.items()} == {
        "nft": True,
        "a": True,
        "b": False,
        "c": False,
    }
    tested = [found[name] for name in ("b", "c")]
    first = min(tested, key=lambda one: one.p_value or 1)
    assert first.p_value is not None and first.corrected_p_value == pytest.approx(min(1, 2 * first.p_value))


def test_claims_are_as_claimed_reversed_or_open() -> None:
    """Three seeds; the base has the runs of loop."""
    runs = [run("loop", seed, solved, base="1000") for seed, solved in enumerate(("1110", "1111", "1111"))]
    runs += [run("grpo", seed, solved) for seed, solved in enumerate(("1000", "0100", "1010"))]
    claims = [["loop", "grpo"], ["grpo", "loop", "absent"], ["nft", "grpo"], ["absent", "loop"], ["loop", "grpo"]]
    found = compare("study", "loop", runs, 0.7, "c" * 40, orderings=claims)
    assert [(row[0], row[1], row[2].partition(":")[0]) for row in ordering_rows(found)] == [
        ("loop > grpo", "3", "as claimed"),
        ("grpo > loop", "3", "reversed"),
        ("nft > grpo", "3", "open"),
    ]
    first = {d.method: d for d in found.differences if (d.split, d.metric) == ("test_normal", "tgc")}["grpo"]
    claim = found.orderings[0]
    assert (claim.difference, claim.low, claim.p_value) == (-first.difference, -(first.high or 0), first.p_value)
    assert "Holm's correction over the claims of a column, is below 0.3, else open." in markdown(found)
    assert "another draw of seeds and of tasks of this kind" in markdown(found)
    assert "<th>claim</th>" in study_page(found)
    assert not study(*runs).orderings and "Orderings" not in markdown(study(*runs))


def test_claims_are_judged_by_the_corrected_p() -> None:
    """Four claims: an interval that leaves zero out is no verdict where p, times the claims, is above the level."""
    solved = {"loop": ("1111", "1110", "1111"), "a": ("1000", "0100", "1010"), "b": ("0000", "0100", "1000")}
    runs = [run(method, seed, bits) for method, rows in solved.items() for seed, bits in enumerate(rows)]
    alone = compare("study", "loop", runs, 0.8, "c" * 40, orderings=[["loop", "a"]])
    among = compare("study", "loop", runs, 0.8, "c" * 40, orderings=[["loop", "a", "b"], ["a", "nft"], ["b", "nft"]])
    one, other = alone.orderings[0], among.orderings[0]
    assert (one.low, one.p_value) == (other.low, other.p_value) and one.low is not None and one.low > 0
    assert one.p_value is not None and 0.05 < one.p_value < 0.2
    assert ordering_rows(alone)[0][2].startswith("as claimed: ")
    assert other.corrected_p_value == pytest.approx(4 * one.p_value) and ordering_rows(among)[0][2].startswith("open: ")


def test_a_claim_whose_methods_share_one_seed_has_no_verdict() -> None:
    """Both have several seeds, and share several with loop."""
    seeds = {"loop": (0, 1, 2), "a": (0, 1), "b": (1, 2)}
    runs = [run(method, seed, "1100" if method == "b" else "0110") for method in seeds for seed in seeds[method]]
    found = compare("study", "loop", runs, 0.95, "c" * 40, orderings=[["a", "b"]])
    row = ordering_rows(found)[0]
    assert row[1] == "1" and all(cell.startswith("one seed ranks nothing: ") for cell in row[2:])
    assert found.notes == ("One seed ranks nothing: there is no interval and no p for a > b, which share one.",)


def test_a_claim_without_spread_has_no_test() -> None:
    runs = [run("loop", 0, "1111"), run("loop", 1, "1111"), run("a", 0, "0101"), run("a", 1, "0101")]
    found = compare("study", "loop", runs, 0.95, "c" * 40, orderings=[["loop", "a"]])
    assert ordering_rows(found)[0][2] == "no test: +50.0"
    assert found.orderings[0].low is None and found.orderings[0].corrected_p_value is None


def evaluated(method: str, seed: int, *dev: float | None) -> FinishedRun:
    """A run with this dev TGC after each iteration."""
    found = run(method, seed, "1100")
    curve = tuple(CurvePoint(iteration=i, mean_return=None, dev_tgc=tgc) for i, tgc in enumerate(dev))
    return replace(found, record=found.record.model_copy(update={"curve": curve}))


def test_falls_from_the_best_evaluation_by_hand() -> None:
    """loop falls by 10 and 20, grpo's shared seed by 0; an iteration without an evaluation counts for nothing."""
    runs = [evaluated("loop", 0, 20, 80, None, 70), evaluated("loop", 1, 20, None, 90, 70)]
    found = study(*runs, evaluated("grpo", 1, 20, 30, None, 40), evaluated("sft_gt", 5, 50, 40, 45))
    assert drift_heads(found)[-2] == "minus loop's fall" and DRIFT_NOTE in markdown(found)
    assert drift_rows(found) == [
        ("loop", "2", "85.0", "70.0", "15.0 ± 7.1", "-", "-"),
        ("grpo", "1", "40.0", "40.0", "0.0", "-20.0", "-"),
        ("sft_gt", "1", "50.0", "45.0", "5.0", "-", "-"),
    ]
    assert "minus loop's fall" in markdown(found) and "minus loop&#x27;s fall" in study_page(found)


def test_drift_from_the_middle_third_to_the_last_by_hand() -> None:
    """70 - 65 and 37.5 - 57.5: neither the base nor what is left over at the start is in a third; 41 - 40."""
    runs = [evaluated("loop", 0, 20, 40, 50, 60, 70, 80, 60), evaluated("loop", 1, 20, 40, 50, 60, 60, 55, 45, 30)]
    found = study(*runs, evaluated("grpo", 0, 90, 30, 40, None, 41))
    assert drift_heads(found)[-1] == "last third minus middle"
    assert [row[-1] for row in drift_rows(found)] == ["-7.5 ± 17.7", "+1.0"]


def test_what_cannot_be_compared_is_noted() -> None:
    found = study(run("loop", 0, "1100", rollouts=96), run("grpo", 0, "10001", world="bandit"))
    budgets, seeds, worlds, tasks = found.notes
    assert budgets == "The methods did not play equal numbers of training rollouts: loop 96, grpo 48."
    assert seeds.startswith("One seed ranks nothing")
    assert "their scores may not compare: world.name." in worlds and "different numbers of tasks" in tasks


def test_budgets_are_compared_run_by_run() -> None:
    """The last seeds played alike, the first did not."""
    runs = [run("loop", 0, "1100"), run("grpo", 0, "1000", rollouts=1440), run("loop", 1, "1100")]
    found = study(*runs, run("grpo", 1, "1000"))
    assert found.notes[0] == "The methods did not play equal numbers of training rollouts: loop 48, grpo 48 to 1,440."


def test_runs_that_were_scored_differently_are_noted_with_the_knobs() -> None:
    """grpo's first seed was; seed and learning rate make no other score, and a limit counts where it holds."""
    same = {"scoring__temperature": "0.1", "evaluation__limits__max_turns": "40"}
    other = same | {"scoring__temperature": "1.0", "evaluation__limits__max_turns": "20"}
    runs = [run("loop", seed, "1100", **same) for seed in (0, 1)]
    alike = study(*runs, run("grpo", 0, "1000", **same, update__learning_rate="1"), run("grpo", 1, "1000", **same))
    assert alike.notes == ()
    found = study(*runs, run("grpo", 0, "1000", **other), run("grpo", 1, "1000", **same))
    assert found.notes == (
        "The runs were scored differently, and their scores may not compare: scoring.limits.max_turns, "
        "scoring.temperature.",
    )


def test_scores_at_the_training_budget_are_a_note() -> None:
    """Means over the seeds; a run whose budgets are the same, or that was not scored so, has no part in it."""
    base = scores("test_normal")
    at_20 = [
        dict.fromkeys(TEST_SPLITS, training_budget(base, tgc=tgc, sgc=sgc)) for tgc, sgc in ((50.0, 10.0), (60.0, 20.0))
    ]
    same = dict.fromkeys(TEST_SPLITS, training_budget(base, turns=40))
    budgets = {("loop", 0): at_20[0], ("loop", 1): at_20[1], ("grpo", 0): same}
    runs = [run(method, seed, "1100") for method in ("loop", "grpo") for seed in (0, 1)]
    found = study(
        *(replace(one, training_budget=budgets.get((one.record.method, one.record.seed), {})) for one in runs)
    )
    assert found.notes == (
        "The scores are at the test budget (40 turns, 1,500 tokens per turn, 3,000 per observation). TGC / SGC at the "
        "training budget (20 turns, 1,500 tokens per turn, 3,000 per observation): "
        "loop test_normal 55.0 / 15.0, test_challenge 55.0 / 15.0.",
    )


def test_without_the_method_to_compare_with_there_are_scores_alone() -> None:
    found = study(run("grpo", 0, "1000"))
    assert [row[0] for row in score_rows(found)] == ["nft", "grpo"] and found.differences == ()


def test_markdown_and_csv_say_the_same_and_the_papers_figures_are_labelled() -> None:
    found = study(run("loop", 0, "1100"), run("rloo", 0, "1000"))
    text = markdown(found)
    assert "not measured here" in text and "`loopline configure rloo`" in text
    assert paper_rows(found)[-1] == ("loop", "71.3", "53.6", "45.7", "26.6")
    rows = list(csv.DictReader(io.StringIO(runs_csv(found))))
    assert len(rows) == 2 * 2 * 2
    assert {(r["method"], r["selected"]) for r in rows if r["metric"] == "tgc"} == {("loop", "50.0"), ("rloo", "25.0")}
    assert cost_rows(found)[0] == ("loop", "1", "48", "1,000", "3", "1.0", "1.5")


def test_the_methods_table_has_each_score_beside_its_difference() -> None:
    found = study(run("loop", 0, "1100"), run("loop", 1, "1110"), run("grpo", 0, "1000"), run("grpo", 1, "1100"))
    rows = list(csv.DictReader(io.StringIO(methods_csv(found))))
    assert [row["method"] for row in rows[::4]] == ["nft", "loop", "grpo"]
    loop, grpo = (next(r for r in rows if (r["method"], r["metric"]) == (name, "tgc")) for name in ("loop", "grpo"))
    assert float(loop["spread"]) == pytest.approx(12.5 * 2**0.5) and loop["difference"] == ""
    assert (grpo["mean"], grpo["seeds"], grpo["shared_seeds"], grpo["difference"]) == ("37.5", "2", "2", "-25.0")
    tested = next(d for d in found.differences if (d.method, d.split, d.metric) == ("grpo", "test_normal", "tgc"))
    assert grpo["difference_low"] == ("" if tested.low is None else str(tested.low))
    assert grpo["corrected_p_value"] == ("" if tested.corrected_p_value is None else str(tested.corrected_p_value))


def test_a_study_of_other_methods_shows_no_figures_of_the_paper() -> None:
    found = compare("study", "starpo_s", [run("starpo_s", 0, "1100")], 0.95, "c" * 40)
    assert paper_rows(found) == []
    assert "not measured here" not in markdown(found) + study_page(found)


def test_signs_of_a_collapse_are_listed_and_marked_in_the_charts_of_their_method() -> None:
    calm = study(run("loop", 0, "1100"), run("grpo", 0, "1000"))
    assert warning_rows(calm) == [] and NO_WARNING in markdown(calm) and 'class="mark"' not in study_page(calm)
    grpo = run("grpo", 0, "1000")
    sign = CollapseWarning(rule="entropy_fall", iteration=1, evidence="entropy is 0.0001")
    warned = study(run("loop", 0, "1100"), replace(grpo, record=grpo.record.model_copy(update={"warnings": (sign,)})))
    assert warning_rows(warned) == [("grpo", "0", "1", "entropy_fall", "entropy is 0.0001")]
    listed = markdown(warned).split("## Signs of a collapse")[1]
    assert "| grpo | 0 | 1 | entropy_fall | entropy is 0.0001 |" in " ".join(listed.split())
    figures = study_page(warned).split("<figure>")[1:]
    assert ['class="mark"' in figure for figure in figures] == [
        "grpo:" in figure.partition("</figcaption>")[0] for figure in figures
    ]


def test_the_page_is_well_formed_loads_nothing_and_escapes() -> None:
    opened: list[str] = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            assert not {"src", "href"} & dict(attributes).keys()
            if tag not in ("meta", "circle", "line", "polyline", "polygon"):
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in ("circle", "line", "polyline", "polygon"):
                assert opened.pop() == tag

    page = study_page(study(run("loop", 0, "1100"), run("loop", 1, "1111"), run("<b>", 0, "1000")))
    Checker().feed(page)
    assert opened == [] and "<b>:" not in page and 'class="band s0"' in page
