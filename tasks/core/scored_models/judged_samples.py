"""The samples of a score's Inspect log as episodes of an evaluation dataset, for MLflow. Pure."""

from collections.abc import Iterator
from typing import Any

from tasks.core.lineage.evaluation_dataset import JudgedEpisode
from tasks.core.records.model_scores import ModelScore


def judged_samples(score: ModelScore, log: dict[str, Any]) -> Iterator[JudgedEpisode]:
    """Yield the episodes of a log that `inspect_log` wrote, but for those that the world broke."""
    for sample in log["samples"]:
        if "error" not in sample:
            yield _judged(score.world, sample)


def _judged(world: str, sample: dict[str, Any]) -> JudgedEpisode:
    verdict, choices = sample["scores"]["success"], sample["output"]["choices"]
    named = ("split", "scenario_id", "difficulty", "end_reason")
    return JudgedEpisode(
        world=world,
        task_id=sample["id"],
        run=sample["epoch"] - 1,
        prompt=sample["input"],
        answer=choices[0]["message"]["content"] if choices else "",
        turns=sum(message["role"] == "assistant" for message in sample["messages"]),
        success=verdict["value"] == "C",
        score=verdict["metadata"]["return"],
        rationale=verdict["explanation"],
        **{name: sample["metadata"][name] for name in named},
    )
