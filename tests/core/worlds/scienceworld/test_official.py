"""Official solutions against what the package's own wrapper answered to them.

Recorded by `python tests/benchmarks/scienceworld_episodes.py --record`, which goes on where it stopped.
"""

import hashlib
import json
from pathlib import Path

import pytest

from tests.core.worlds.scienceworld.conftest import Open

pytestmark = pytest.mark.scienceworld
RECORDED = json.loads(Path(__file__).with_name("official.json").read_text())
"""By type: variation, gold, score, and a digest of all observations."""
DISTURBING = ("find-animal", 0)


def digest_of(texts: list[str]) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_solution_scores_100_with_the_wrappers_bytes(open_session: Open, name: str) -> None:
    recorded = RECORDED[name]
    session = open_session(name, recorded["variation"])
    answers = [session.opening, *map(session.step, recorded["gold"])]
    assert answers[-1]["completed"] and round(100 * answers[-1]["score"]) == recorded["score"] == 100
    assert digest_of([answer["text"] for answer in answers]) == recorded["seen"]


def test_episodes_beside_it_change_no_byte(open_session: Open) -> None:
    name, recorded = next(iter(RECORDED.items()))
    twins = [open_session(name, recorded["variation"]) for _ in range(2)]
    other = open_session(*DISTURBING)
    seen = [[twin.opening["text"]] for twin in twins]
    for action in recorded["gold"]:
        for twin, texts in zip(twins, seen, strict=True):
            texts.append(twin.step(action)["text"])
            other.step("wait1")
    assert [digest_of(texts) for texts in seen] == [recorded["seen"]] * 2
