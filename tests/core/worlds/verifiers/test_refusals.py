"""Environments that cannot be played, and those that break in play: one line each, and never a reward of 0."""

from contextlib import closing
from typing import Any

import pytest

from tasks.core.interfaces.world import WorldFault
from tasks.core.records.files import ArtifactError
from tests.core.worlds.verifiers.conftest import Opened, config_of, pool_of

pytestmark = pytest.mark.verifiers

REFUSED = {
    "no module": ({"environment": "missing_package"}, "no module 'missing_package' in its interpreter"),
    "an import of its own": ({"environment": "arena"}, "no module 'textarena'"),
    "two roles": ({"environment": "pairs"}, "roles asker, solver"),
    "no answer": ({"environment": "sums", "settings": {"taskset": {"without_answer": True}}}, "row 12 of its dataset"),
    "an empty answer": ({"settings": {"taskset": {"kind": "unanswered"}}}, "row 4 of its dataset has no answer"),
    "an invalid row": ({"settings": {"taskset": {"kind": "torn"}}}, "row 3 of its dataset: ValidationError"),
    "no rows": ({"settings": {"taskset": {"kind": "empty"}}}, "its dataset is empty"),
    "a container": ({"settings": {"taskset": {"kind": "boxed"}}}, "needs a container"),
    "programs": ({"settings": {"taskset": {"kind": "runtime"}}}, "built of its rubric runs programs"),
    "a tool without a schema": ({"settings": {"taskset": {"kind": "schemaless"}}}, "has no schema"),
    "a setting that it has not": ({"settings": {"taskset": {"kind": "x", "colour": 1}}}, "colour"),
    "a solution that it has not": ({"environment": "sums", "solution": "moves"}, "no field moves"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_played_is_said_in_one_line(name: str) -> None:
    knobs, said = REFUSED[name]
    config = config_of(**{"environment": "bad", **knobs})
    with pytest.raises(ArtifactError) as refusal:
        pool_of(config).listed()
    assert said in str(refusal.value) and "\n" not in str(refusal.value)
    assert str(refusal.value).startswith(f"world.verifiers: {config.environment}: ")


BROKEN = {
    "raises": ("crash", "ZeroDivisionError"),
    "nan": ("so", "is nan"),
    "file": ("so", "Operation not permitted|Too many open files"),
    "socket": ("so", "Operation not permitted|Too many open files|no sockets"),
    "program": ("so", "Operation not permitted|Too many open files|Resource temporarily"),
    "waits": ("so", "waits for something outside"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_rubric_that_breaks_is_a_fault_and_no_zero(opened: Opened, kind: str) -> None:
    turn, said = BROKEN[kind]
    world = opened("bad", settings={"taskset": {"kind": kind}})
    task = world.tasks("train")[0].task_id
    with closing(world.open(task, 1)) as episode, pytest.raises(WorldFault, match=said):
        episode.step(turn)
    with closing(world.open(task, 1)) as episode:
        assert kind != "raises" or (episode.step("fine").done and episode.evaluate().success)


def test_a_process_that_ends_itself_ends_its_own_episode(opened: Opened) -> None:
    world: Any = opened("bad", settings={"taskset": {"kind": "exits"}})
    task = world.tasks("train")[0].task_id
    with closing(world.open(task, 1)) as episode, pytest.raises(Exception, match="ended with exit code 3"):
        episode.step("crash")
    with closing(world.open(task, 2)) as episode:
        assert episode.prompt
