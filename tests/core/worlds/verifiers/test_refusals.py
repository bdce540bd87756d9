"""Environments that cannot be played, and those that break in play: one line each, and never a reward of 0."""

import json
import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tasks.core.config.splits import SPLITS
from tasks.core.interfaces.world import WorldFault
from tasks.core.records.files import ArtifactError
from tasks.core.worlds.verifiers.interpreter import INTERPRETERS, python_executable
from tasks.core.worlds.verifiers.world import VerifiersWorld
from tests.core.worlds.verifiers.conftest import PROJECT, Opened, config_of, each_its_split, pool_of

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


THROUGH_THE_POOL = ("no module", "an invalid row")
"""The others are refused by the same lines; a start for each would take five seconds of a core."""


@pytest.fixture(scope="module")
def refusals() -> dict[str, str]:
    """What the zygote refuses each with, all of them in processes that one interpreter forks."""
    pools = {name: pool_of(config_of(**{"environment": "bad", **knobs})) for name, (knobs, _) in REFUSED.items()}
    settings = [json.dumps(pool.settings(listing=True)) for pool in pools.values()]
    command = [python_executable((), PROJECT / INTERPRETERS), "-P", "-s", Path(__file__).with_name("greetings.py")]
    variables = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run([*command, *settings], env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    greetings = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: greeting["refused"] for name, greeting in zip(pools, greetings, strict=True)}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_played_is_said_in_one_line(refusals: dict[str, str], name: str) -> None:
    _, said = REFUSED[name]
    assert said in refusals[name] and "\n" not in refusals[name]


@pytest.mark.parametrize("name", THROUGH_THE_POOL)
def test_a_refusal_is_an_error_that_names_the_environment(refusals: dict[str, str], name: str) -> None:
    config = config_of(**{"environment": "bad", **REFUSED[name][0]})
    with pytest.raises(ArtifactError) as refusal:
        pool_of(config).listed()
    assert str(refusal.value) == f"world.verifiers: {config.environment}: {refusals[name]}"


BROKEN = {
    "raises": ("crash", "ZeroDivisionError"),
    "nan": ("so", "is nan"),
    "file": ("so", "Operation not permitted|Too many open files"),
    "socket": ("so", "Operation not permitted|Too many open files|no sockets"),
    "program": ("so", "Operation not permitted|Too many open files|Resource temporarily"),
    "waits": ("so", "waits for something outside"),
}


SERVED = (("raises", "nan", "file", "socket"), ("program", "waits", "exits"))
"""Kinds that one process serves, each in a split of its own."""


def bad(opened: Opened, kind: str) -> tuple[VerifiersWorld, str]:
    """Return the broken environment, and its task of this kind."""
    (kinds,) = (kinds for kinds in SERVED if kind in kinds)
    world = opened("bad", splits=each_its_split([{"taskset": {"kind": one}} for one in kinds]))
    return world, world.tasks(SPLITS[kinds.index(kind)])[0].task_id


@pytest.mark.parametrize("kind", BROKEN)
def test_a_rubric_that_breaks_is_a_fault_and_no_zero(opened: Opened, kind: str) -> None:
    turn, said = BROKEN[kind]
    world, task = bad(opened, kind)
    with closing(world.open(task, 1)) as episode, pytest.raises(WorldFault, match=said):
        episode.step(turn)
    with closing(world.open(task, 1)) as episode:
        assert kind != "raises" or (episode.step("fine").done and episode.evaluate().success)


def test_a_process_that_ends_itself_ends_its_own_episode(opened: Opened) -> None:
    world, task = bad(opened, "exits")
    with closing(world.open(task, 1)) as episode, pytest.raises(Exception, match="ended with exit code 3"):
        episode.step("crash")
    with closing(world.open(task, 2)) as episode:
        assert episode.prompt
