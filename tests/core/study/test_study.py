"""Finished runs -> the document, tables and page of a study, on outcomes made by hand and on a run of its own."""

from html.parser import HTMLParser

import pytest
import yaml

from tasks.core.config.params import Params, ParamsError
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.comparison import Study, StudyRun
from tasks.core.study import (
    FinishedRun,
    RunLabel,
    claims,
    differences,
    markdown,
    read_finished_run,
    rows,
    scores,
    sections,
    solved_texts,
    study_of,
    study_page,
)

TGC, SGC = ("test_normal", "tgc"), ("test_normal", "sgc")


def run(
    method: str, seed: int, solved: str, base: str = "1000", trained: bool = True, knobs: dict[str, str] | None = None
) -> FinishedRun:
    """A digit for each task, two tasks to a scenario; 1: solved."""
    record = StudyRun(
        method=method,
        seed=seed,
        command=f"loopline configure {method}",
        trained=trained,
        selected="i001",
        rollouts=48,
        optimizer_steps=3,
        dev_tgc=((0, 25.0), (1, 50.0)),
        solved={split: {"selected": (solved,), "base": (base,)} for split in TEST_SPLITS},
    )
    tasks = dict.fromkeys(map(str, TEST_SPLITS), " ".join(f"s{i // 2}/t{i}" for i in range(len(solved))))
    named = {"world.name": "pocketworld"} | (knobs or {})
    return FinishedRun(record, tasks, named)


def study(
    *runs: FinishedRun, orderings: list[list[str]] | None = None, confidence: float = 0.95, against: str = "loop"
) -> Study:
    return study_of(runs, "study", against, orderings or [], confidence, "c" * 40)


def cells(found: Study, title: str) -> dict[str, list[str]]:
    """The cells of a table by the first one of their row."""
    section = next(section for section in sections(found) if section.title == title)
    return {row[0]: list(row[1:]) for row in section.rows}


def test_outcomes_are_a_text_for_each_evaluation_run() -> None:
    played = [Outcome(f"t{task}", "s", 1, number, task == number) for number in (1, 0) for task in (2, 0, 1)]
    assert solved_texts(played) == ("100", "010")


def test_means_spreads_and_differences_by_hand() -> None:
    found = study(run("loop", 0, "1100"), run("loop", 1, "1110"), run("grpo", 0, "1000"), run("grpo", 1, "1100"))
    table = rows(found)
    assert scores(table["loop"][TGC]) == [50, 75] and scores(table["loop"][SGC]) == [50, 50]
    assert scores(table["nft"][TGC]) == [25, 25]
    tested = differences(found)["grpo", "loop"][TGC]
    assert (tested.test.difference, tested.seeds, tested.test.scenarios) == (-25, 2, 2)
    shown = cells(found, "Scores")
    assert shown["loop"] == ["2", "62.5 ± 17.7", "50.0 ± 0.0", "62.5 ± 17.7", "50.0 ± 0.0", "48", "3"]
    assert shown["grpo"][1].startswith("37.5 ± 17.7; -25.0 (no spread: no interval)")
    assert shown["nft"][-2:] == ["", ""] and found.notes == ()


def test_a_control_that_is_not_trained_has_its_base_policy_in_its_row() -> None:
    found = study(run("loop", 0, "1100"), run("imitation", 0, "0000", base="1110", trained=False), against="nft")
    assert scores(rows(found)["imitation"][TGC]) == [75]
    assert cells(found, "Scores")["imitation"][1] == "75.0; +50.0 (one seed: no interval)"


def test_holms_correction_counts_those_that_are_tested() -> None:
    """c is tested. a has one seed, and b no spread: neither p makes c's larger."""
    runs = [run("loop", 0, "11110000", base="11110000"), run("loop", 1, "11110100", base="11110100")]
    runs += [run("a", 0, "10100000"), run("b", 0, "01010000"), run("b", 1, "01010001")]
    runs += [run("c", 0, "11000000"), run("c", 1, "10010000")]
    found = {pair[0]: tested[TGC] for pair, tested in differences(study(*runs)).items()}
    assert {name for name, one in found.items() if one.corrected is None} == {"nft", "a"} == {*found} - {"b", "c"}
    first = min((found[name] for name in ("b", "c")), key=lambda one: one.test.p_value or 1)
    assert first.test.p_value is not None and first.corrected == pytest.approx(min(1, 2 * first.test.p_value))


def test_claims_are_as_claimed_reversed_or_open() -> None:
    """Three seeds; the base has the runs of loop."""
    runs = [run("loop", seed, solved) for seed, solved in enumerate(("1110", "1111", "1111"))]
    runs += [run("grpo", seed, solved) for seed, solved in enumerate(("1000", "0100", "1010"))]
    asked = [["loop", "grpo"], ["grpo", "loop", "absent"], ["nft", "grpo"], ["absent", "loop"], ["loop", "grpo"]]
    found = study(*runs, orderings=asked, confidence=0.7)
    assert {claim: (row[0], row[1].partition(":")[0]) for claim, row in cells(found, "Claims").items()} == {
        "loop > grpo": ("3", "as claimed"),
        "grpo > loop": ("3", "reversed"),
        "nft > grpo": ("3", "open"),
    }
    claim, difference = claims(found)["loop", "grpo"][TGC].test, differences(found)["grpo", "loop"][TGC].test
    assert difference.high is not None
    mirrored = (-difference.difference, -difference.high, difference.p_value)
    assert (claim.difference, claim.low, claim.p_value) == mirrored
    assert "Holm's correction over the claims of a column, is below 0.3, else open." in markdown(found)
    assert "another draw of seeds and of tasks" in markdown(found) and "<th>claim</th>" in study_page(found)
    assert "Claims" not in markdown(study(*runs))


def test_claims_are_judged_by_the_corrected_p() -> None:
    """Four claims: an interval that leaves zero out is no verdict where p, times the claims, is above the level."""
    solved = {"loop": ("1111", "1110", "1111"), "a": ("1000", "0100", "1010"), "b": ("0000", "0100", "1000")}
    runs = [run(method, seed, bits) for method, of in solved.items() for seed, bits in enumerate(of)]
    alone = study(*runs, orderings=[["loop", "a"]], confidence=0.8)
    among = study(*runs, orderings=[["loop", "a", "b"], ["a", "nft"], ["b", "nft"]], confidence=0.8)
    one, other = (claims(found)["loop", "a"][TGC] for found in (alone, among))
    assert one.test == other.test and one.test.low is not None and one.test.low > 0
    assert one.test.p_value is not None and 0.05 < one.test.p_value < 0.2
    assert other.corrected == pytest.approx(4 * one.test.p_value)
    verdicts = [cells(found, "Claims")["loop > a"][1].partition(":")[0] for found in (alone, among)]
    assert verdicts == ["as claimed", "open"]


def test_claims_without_a_test_are_open_and_say_why() -> None:
    """a and b share one seed, though both share several with loop; loop and c differ everywhere alike."""
    seeds = {"loop": (0, 1, 2), "a": (0, 1), "b": (1, 2), "c": (0, 1)}
    solved = {"loop": "1111", "a": "0110", "b": "1100", "c": "0101"}
    runs = [run(method, seed, solved[method]) for method in seeds for seed in seeds[method]]
    shown = cells(study(*runs, orderings=[["a", "b"], ["loop", "c"]]), "Claims")
    assert shown["a > b"][:2] == ["1", "open: +0.0 (one seed: no interval)"]
    assert shown["loop > c"][1] == "open: +50.0 (no spread: no interval)"


def test_what_cannot_be_compared_is_refused_or_noted() -> None:
    """A limit counts where it holds; seed and learning rate make no other score."""
    with pytest.raises(ParamsError, match="grpo with seed 0 was scored on other tasks than loop with seed 0"):
        study(run("loop", 0, "1100"), run("grpo", 0, "110011"))
    same = {"scoring.temperature": "0.1", "evaluation.limits.max_turns": "40"}
    other = same | {"scoring.temperature": "1.0", "evaluation.limits.max_turns": "20"}
    loop, faster = run("loop", 0, "1100", knobs=same), same | {"update.learning_rate": "1"}
    assert study(loop, run("grpo", 0, "1000", knobs=faster)).notes == ()
    found = study(loop, run("grpo", 0, "1000", knobs=other))
    assert found.notes == (
        "The runs were scored differently, and their scores may not compare: scoring.limits.max_turns, "
        "scoring.temperature.",
    )


def test_without_the_method_to_compare_with_there_are_scores_alone() -> None:
    found = study(run("grpo", 0, "1000"))
    assert list(cells(found, "Scores")) == ["nft", "grpo"] and differences(found) == {}
    assert "`loopline configure grpo`" in markdown(found)


def test_a_chart_has_one_colour_for_each_method_and_the_one_compared_with_in_all() -> None:
    page = study_page(study(*(run(method, 0, "1100") for method in ("loop", *"abcdef"))))
    keys = [figure.partition("</figcaption>")[0] for figure in page.split("<figure>")[1:]]
    assert [[f'key s{i}">{name}<' in keys[0] for i, name in enumerate(("loop", *"abcde"))]] == [[True] * 6]
    assert 'key s0">loop<' in keys[1] and 'key s1">f<' in keys[1] and len(keys) == 2


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
    assert opened == [] and "><b><" not in page and 'class="band s0"' in page


def test_a_run_brings_its_outcomes_by_task(finished_run: StageContext[Params]) -> None:
    layout, params = finished_run.layout, finished_run.inputs
    (layout.root / "params.yaml").write_text(yaml.safe_dump(params.model_dump(mode="json")))
    found = read_finished_run(layout.root, RunLabel("loop", 0, "loopline configure"))
    record = found.record
    assert (record.selected, record.rollouts, record.optimizer_steps) == ("i002", 192, 64)
    assert [iteration for iteration, _ in record.dev_tgc] == [0, 2, 4, 6, 8]
    assert found.tasks["test_normal"].split()[:4] == [f"s0/train_001_{n}" for n in (1, 2, 3)] + ["s1/train_002_1"]
    assert record.solved["test_challenge"] == dict.fromkeys(("base", "selected"), ("100110", "100110"))
