"""The notebook of first steps, run as a reader runs it, in a project of its own."""

import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.flows.tiny_project import ROOT, environment, make_project

pytestmark = pytest.mark.whole_runs

NOTEBOOK = "docs/first_steps.ipynb"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the notebook; return what each code cell printed or showed, by its source."""
    project = make_project(tmp_path_factory.mktemp("first_steps") / "project")
    (project / "docs").mkdir()
    notebook = nbformat.read(ROOT / NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=550, resources={"metadata": {"path": project / "docs"}})
    client.execute(env=environment(project))
    return {cell.source: shown(cell) for cell in notebook.cells if cell.cell_type == "code"}


def shown(cell: Any) -> str:
    texts = (output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)
    return "".join(texts)


def of_cell(outputs: dict[str, str], start: str) -> str:
    (found,) = (text for source, text in outputs.items() if source.startswith(start))
    return found


def test_two_iterations_make_the_policy_better(outputs: dict[str, str]) -> None:
    table = of_cell(outputs, "%%sh\nloopline score data/base_policies/pocket data/iterations/i002/policy")
    (row,) = (line for line in table.splitlines() if re.match(r"\| dev +\| all ", line))
    base, trained = map(float, re.findall(r"\| (\d+\.\d) \+-", row))
    assert trained >= base + 20


def test_a_rollout_is_read_as_text(outputs: dict[str, str]) -> None:
    text = of_cell(outputs, "rollout = ")
    assert "failed:" in text and re.search(r"\d+ of \d+ tokens are the policy's", text)


def test_a_changed_knob_is_named_with_what_would_run(outputs: dict[str, str]) -> None:
    assert "update.learning_rate" in of_cell(outputs, "%%sh\nloopline configure --refresh")


def test_outputs_in_the_repository_are_of_these_cells_and_name_no_folder_of_anybody() -> None:
    notebook = nbformat.read(ROOT / NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not re.search(r"/(root|work|tmp)/", "".join(map(shown, code)))
