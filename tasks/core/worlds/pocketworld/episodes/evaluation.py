"""A task's unit tests, of AppWorld's three kinds: required changes made, no other changes, right answer."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tasks.core.interfaces.world import Evaluation
from tasks.core.worlds.pocketworld.authoring.scenarios import Problem
from tasks.core.worlds.pocketworld.authoring.state import Difference, State, difference
from tasks.core.worlds.pocketworld.episodes.server import Completion


def evaluate(problem: Problem, state: State, completion: Completion | None) -> Evaluation:
    """Run the tests of `problem` on the state an agent left behind. Every task has 3 to 8 tests."""
    verdicts = list(_verdicts(problem, state, completion))
    return Evaluation(
        passed=tuple(requirement for requirement, holds in verdicts if holds),
        failed=tuple(requirement for requirement, holds in verdicts if not holds),
    )


def _verdicts(problem: Problem, state: State, completion: Completion | None) -> Iterator[tuple[str, bool]]:
    expected = difference(problem.state, problem.solved)
    actual = difference(problem.state, state)
    yield from _additions(expected, actual)
    yield from _removals(expected, actual)
    yield from _updates(expected, actual)
    yield "nothing else changed", _within(actual, expected)
    if problem.answer is not None:
        yield "the answer is right", completion is not None and _same(completion.answer, problem.answer)
    yield "the task was completed, not given up", completion is not None and completion.status == "success"


def _additions(expected: Difference, actual: Difference) -> Iterator[tuple[str, bool]]:
    for (app, noun), wanted in expected.added.items():
        added = actual.added.get((app, noun), Counter())
        yield f"{app}: {wanted.total()} new {noun}", added.total() >= wanted.total()
        yield f"{app}: every new {noun} as asked", wanted <= added


def _removals(expected: Difference, actual: Difference) -> Iterator[tuple[str, bool]]:
    for (app, noun), wanted in expected.removed.items():
        removed = actual.removed.get((app, noun), frozenset())
        if len(wanted) > 1:
            yield f"{app}: one {noun} that had to go is gone", bool(wanted & removed)
        yield f"{app}: every {noun} that had to go is gone", wanted <= removed


def _updates(expected: Difference, actual: Difference) -> Iterator[tuple[str, bool]]:
    for (app, noun), wanted in expected.updated.items():
        updated = actual.updated.get((app, noun), {}).items()
        if len(wanted) > 1:
            yield f"{app}: one {noun} that had to change did", any(cell in updated for cell in wanted.items())
        yield f"{app}: every {noun} that had to change did", wanted.items() <= updated


def _within(actual: Difference, expected: Difference) -> bool:
    """Return whether nothing changed beyond what was expected."""
    return (
        all(rows <= expected.added.get(place, Counter()) for place, rows in actual.added.items())
        and all(keys <= expected.removed.get(place, frozenset()) for place, keys in actual.removed.items())
        and all(cells.items() <= expected.updated.get(place, {}).items() for place, cells in actual.updated.items())
    )


def _same(given: Any, right: Any) -> bool:
    """Compare answers: numbers by value, text ignoring case and outer blanks; a number may be given as text."""
    if isinstance(given, str):
        return given.strip().lower() == str(right).lower()
    return not isinstance(given, bool) and bool(given == right)
