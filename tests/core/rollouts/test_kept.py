"""A stage that was stopped goes on where it was, with the bytes of one that was not. World and engine are real."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from shutil import copytree
from typing import Any

import pytest

from tasks.core.config.evaluation import EvaluationConfig, ScoringConfig
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import CollectionInputs, EvaluationInputs, ScoringInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Candidate, Evaluation, Selection
from tasks.core.rollouts import shards
from tasks.core.rollouts.shards import PlayedRollouts, play_in_shards
from tasks.evaluate_policy import evaluate_policy
from tasks.score import score

pytestmark = pytest.mark.whole_runs

SCENARIOS = 6
"""They have 18 tasks; of one open episode a part has 8 rollouts: parts of 8, 8 and 2."""


@dataclass
class Interrupted:
    """`play_in_shards`, stopped before part `stop_before` of those that it plays."""

    stop_before: int | None = None
    played: list[tuple[str, int]] = field(default_factory=list)

    def __call__(self, context: Any, planned: Any, *arguments: Any, **more: Any) -> PlayedRollouts:
        if len(self.played) == self.stop_before:
            raise KeyboardInterrupt
        self.played.append((more["description"], len(planned)))
        return play_in_shards(context, planned, *arguments, **more)


@pytest.fixture
def small(params: Params) -> Params:
    collection = params.collection.model_copy(update={"max_concurrent_episodes": 1})
    evaluation, scoring = EvaluationConfig(scenarios=SCENARIOS), ScoringConfig(rollouts_per_task=1, scenarios=SCENARIOS)
    return params.model_copy(update={"collection": collection, "evaluation": evaluation, "scoring": scoring})


@pytest.fixture
def dev(context: StageContext[CollectionInputs], small: Params) -> Iterator[StageContext[EvaluationInputs]]:
    yield StageContext(context.layout, EvaluationInputs.of(small), "i000", context.cache, version="recorded")
    context.cache.close()


def interrupt(monkeypatch: pytest.MonkeyPatch, stop_before: int | None = None) -> Interrupted:
    player = Interrupted(stop_before)
    monkeypatch.setattr(shards, "play_in_shards", player)
    return player


def written(layout: Layout) -> list[bytes]:
    return [path.read_bytes() for path in (layout.evaluation("i000"), layout.evaluation_rollouts("i000"))]


def test_dev_goes_on_where_it_was_stopped(
    dev: StageContext[EvaluationInputs], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate_policy(dev)
    undisturbed = written(dev.layout)
    interrupt(monkeypatch, stop_before=2)
    with pytest.raises(KeyboardInterrupt):
        evaluate_policy(dev)
    player = interrupt(monkeypatch)
    evaluate_policy(dev)
    assert player.played == [("dev, i000", 2)]
    assert written(dev.layout) == undisturbed
    assert "dev, i000: 8 of 18 rollouts are kept from an attempt that was stopped" in capsys.readouterr().out
    evaluate_policy(dev)
    assert player.played[1:] == [("dev, i000", 8), ("dev, i000", 8), ("dev, i000", 2)], (
        "a result that stands is no stop"
    )


@pytest.mark.parametrize("changed", ["version", "policy", "world", "recorded"])
def test_what_other_code_or_another_policy_played_is_not_taken(
    dev: StageContext[EvaluationInputs], monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    interrupt(monkeypatch, stop_before=1)
    with pytest.raises(KeyboardInterrupt):
        evaluate_policy(dev)
    if changed == "policy":
        weights = dev.layout.policy("i000") / "adapter_model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1  # the last bit of the last weight
        weights.write_bytes(content)
    if changed == "world":
        (dev.layout.world / "note").write_text("another world")
    player = interrupt(monkeypatch)
    evaluate_policy(replace(dev, version={"version": "other", "recorded": ""}.get(changed, dev.version)))
    assert [size for _, size in player.played] == [8, 8, 2]


def test_score_keeps_what_the_base_played(
    dev: StageContext[EvaluationInputs], small: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = dev.layout
    evaluate_policy(dev)
    copytree(layout.policy("i000"), layout.policy("i001"))
    found = read_document(layout.evaluation("i000"), Evaluation)
    chosen = Candidate(iteration="i001", dev_tgc=0.0, dev_sgc=0.0, adapter_digest=found.adapter_digest)
    write_document(layout.selection, Selection(**chosen.model_dump(), candidates=(chosen,)))
    context = StageContext(layout, ScoringInputs.of(small), "test_normal", dev.cache, version="recorded")
    paths = (layout.score("test_normal"), layout.score_rollouts("test_normal"))
    score(context)
    undisturbed = [path.read_bytes() for path in paths]
    interrupt(monkeypatch, stop_before=4)
    with pytest.raises(KeyboardInterrupt):
        score(context)
    player = interrupt(monkeypatch)
    score(context)
    assert player.played == [("test_normal, i001", 8), ("test_normal, i001", 2)]
    assert [path.read_bytes() for path in paths] == undisturbed
    assert not (layout.root / shards.PLAYED / "test_normal").exists()
