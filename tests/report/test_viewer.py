"""The page in a real browser, opened as a file and used with pointer and keyboard."""

import json
from collections.abc import Iterator

import pytest

from tasks.core.interfaces.stage import StageContext
from tasks.core.records.rollout_sets import script
from tests.report.browser import EXECUTABLE, Browser

pytestmark = pytest.mark.skipif(not EXECUTABLE, reason="no chromium is installed")
NARROW, WIDE = 420, 1280


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def page(reported_run: StageContext, window: Browser) -> Iterator[str]:
    """Return the address of a small run's report. No script of the page may fail."""
    window.errors.clear()
    yield (reported_run.layout.report / "index.html").as_uri()
    assert window.errors == []


def square(window: Browser, task: str, iteration: int) -> tuple[float, float]:
    """Return a cell's place in the heat map, as shares of its width and height. The run has 8 iterations."""
    tasks = window.run("[...document.querySelectorAll('#heat li')].map(label => label.textContent)")
    return (iteration - 0.5) / 8, (tasks.index(task) + 0.5) / len(tasks)


def listed(window: Browser) -> list[str]:
    return [str(text) for text in window.run("[...document.querySelectorAll('#rows tr')].map(row => row.innerText)")]


def test_a_rollout_is_loaded_when_it_is_asked_for_and_hostile_text_stays_text(page: str, window: Browser) -> None:
    window.open(page)
    assert window.run("window.loopline_rollouts") is None, "nothing is loaded before it is asked for"
    assert window.text("#count") == "24 of 246 rollouts"
    window.click("#rows tr")
    window.wait("document.querySelector('#rollout pre')")
    assert window.run("Object.keys(window.loopline_rollouts)") == ["i001"]
    shown = window.run("document.querySelector('#rollout').innerHTML")
    assert "&lt;img src=x onerror=" in shown
    assert "<img" not in shown
    assert '<span class="special">&lt;|im_end|&gt;</span>' in shown
    assert window.text("#rollout .instruction").startswith("Add a payment with name")
    assert window.run("document.title") == "pocketworld: loopline report"
    assert window.run("location.hash") == "#i001/train_001_1/0"


def test_the_address_of_a_rollout_opens_it_again(page: str, window: Browser) -> None:
    window.open(f"{page}#i003/train_001_2/2")
    window.wait("document.querySelector('#rollout pre')")
    assert window.text("#rollout h3").startswith("train_001_2 #2")


def test_a_rollout_that_mlflow_holds_as_a_trace_leads_there(
    page: str, window: Browser, reported_run: StageContext
) -> None:
    reported_run.layout.traces.write_text(script("loopline_traces", "i003/train_001_2/2", "http://a/#t"))
    window.open(f"{page}#i003/train_001_2/2")
    window.wait("document.querySelector('#rollout pre')")
    assert window.run("document.querySelector('#rollout h3 a').href") == "http://a/#t"
    window.click("#rows tr:not(.chosen)")
    window.wait("!document.querySelector('#rollout h3 a')")
    reported_run.layout.traces.unlink()
    window.open(f"{page}#i003/train_001_2/2")
    window.wait("document.querySelector('#rollout pre')")
    assert window.run("document.querySelector('#rollout h3 a')") is None


def test_search_by_task_instruction_return_outcome_and_end(page: str, window: Browser) -> None:
    window.open(page)
    window.choose("#set", "")
    window.write("#find", "train_001_2")
    assert window.text("#count") == "41 of 246 rollouts", "8 iterations x 4, 5 x dev, 2 tests x 2 policies"
    instruction = window.text("#rows small")
    window.write("#find", " ".join(reversed(instruction.split()[3:])).upper())
    assert {line.split("\t")[1].split("\n")[0] for line in listed(window)} == {"train_001_2"}
    window.write("#find", "")
    window.choose("#end", "turn_limit")
    assert all("turn limit" in line for line in listed(window))
    window.click("#filters button[type=reset]")
    window.choose("#set", "i001")
    window.wait("document.querySelectorAll('#rows tr').length === 24")
    window.write("#low", "0.4")
    window.write("#high", "0.6")
    returns = window.run("[...document.querySelectorAll('#rows tr')].map(row => row.cells[3].textContent)")
    assert set(returns) == {"0.50"}
    window.write("#low", "")
    window.write("#high", "")
    window.choose("#outcome", "success")
    assert window.run("[...document.querySelectorAll('#rows tr')].every(row => row.cells[3].textContent === '1.00')")


def test_a_click_on_a_head_sorts(page: str, window: Browser) -> None:
    window.open(page)
    returns = "[...document.querySelectorAll('#rows tr')].map(row => Number(row.cells[3].textContent))"
    window.click("#list th[data-column=return]")
    assert window.run(returns) == sorted(window.run(returns))
    window.click("#list th[data-column=return]")
    assert window.run(returns) == sorted(window.run(returns), reverse=True)


def test_the_heat_map_explains_a_square_and_leads_to_its_rollouts(page: str, window: Browser) -> None:
    window.open(page)
    place = square(window, "train_001_3", 4)
    window.hover("#heat-plot", *place)
    note = window.text("#heat-note")
    of_task = "loopline.sets.get('i004').rows.filter(row => row.task === 'train_001_3')"
    played = window.run(f"{of_task}.map(row => [row.return, row.success])")
    mean = sum(episode_return for episode_return, _ in played) / 4
    assert note.startswith("train_001_3, iteration 4\n")
    assert f"mean return {mean:.2f}, {sum(success for _, success in played)} of 4 succeed" in note
    window.click_at("#heat-plot", *place)
    window.wait("document.querySelector('#rollout pre')")
    assert window.text("#count") == "4 of 246 rollouts"
    assert window.run("location.hash") == "#i004/train_001_3/0"
    window.click("#heat-figure input[value=success_share]")
    assert window.run("getComputedStyle(document.querySelector('#heat-plot .mean_return')).display") == "none"
    assert window.run("getComputedStyle(document.querySelector('#heat-plot .success_share')).display") != "none"


def test_two_checkpoints_on_one_task_are_shown_side_by_side(page: str, window: Browser) -> None:
    window.open(f"{page}#test_normal:selected/train_001_2/0")
    window.wait("document.querySelector('#rollout .beside')")
    window.click("#rollout .beside")
    window.wait("document.querySelector('#pair .pair')")
    heads = window.run("[...document.querySelectorAll('#pair h3')].map(head => head.textContent)")
    assert heads == ["A: test_normal, base #0", "B: test_normal, selected #0"]
    address = window.run("location.href")
    assert address.endswith("#compare/train_001_2/test_normal%3Abase/0/test_normal%3Aselected/0")
    window.choose("#a-set", "i001")
    window.choose("#a-number", "3")
    window.wait("document.querySelector('#pair h3').textContent === 'A: iteration 1 #3'")
    window.open(address)
    window.wait("document.querySelector('#pair h3')")
    assert window.text("#pair h3") == heads[0]


def test_similar_turns_are_aligned_and_only_lines_that_differ_are_marked(page: str, window: Browser) -> None:
    window.open(page)
    short = ["print(pay(1))", "complete_task()"]
    long = ["show_api_doc('bank')", "print(pay(2))", "complete_task()"]
    assert window.run(f"loopline.alignTurns({json.dumps(short)}, {json.dumps(long)})") == [[-1, 0], [0, 1], [1, 2]]
    assert window.run("loopline.alignTurns(['a b'], ['c d', 'a b'])") == [[-1, 0], [0, 1]]
    assert window.run("loopline.alignTurns([], ['x'])") == [[-1, 0]]
    assert window.run("loopline.sameLines('a\\nb\\nc', 'a\\nc\\nd')") == [[True, False, True], [True, True, False]]


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_no_window_has_to_be_scrolled_sideways(page: str, window: Browser, width: int) -> None:
    window.open(f"{page}#i003/train_001_2/2", width)
    window.wait("document.querySelector('#rollout pre')")
    window.click("#rollout .beside")
    window.wait("document.querySelector('#pair .pair')")
    assert window.run("document.documentElement.scrollWidth") == width
