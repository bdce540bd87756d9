"""How an environment's tasks are dealt to the splits; needs no interpreter."""

import pytest
from pydantic import ValidationError

from tasks.core.config.splits import SPLITS
from tasks.core.records.files import ArtifactError
from tasks.core.worlds.verifiers.settings import VerifiersConfig, VerifiersSplit, VerifiersSplits, merged
from tasks.core.worlds.verifiers.tasks import Row, needed, parted

TEST = {"taskset": {"split": "test"}}


def config(**settings: dict[str, object]) -> VerifiersConfig:
    parts = {split: VerifiersSplit(tasks=5, settings=settings.get(split, {})) for split in SPLITS}
    return VerifiersConfig(environment="x", settings={"taskset": {"level": 1}}, splits=VerifiersSplits(**parts))


def rows(first: int, count: int) -> list[Row]:
    return [Row(number, f"content {first + number}", f"task {first + number}") for number in range(count)]


def test_splits_with_equal_settings_share_a_stream() -> None:
    section = config(test_normal=TEST, test_challenge=TEST)
    assert section.streams == [{"taskset": {"level": 1}}, {"taskset": {"level": 1, "split": "test"}}]
    assert needed(section) == [10, 10]
    dealt = parted([rows(0, 30), rows(100, 10)], section, 1)
    assert {task.stream for split in SPLITS[:2] for task in dealt[split]} == {0}
    assert sorted(task.row for split in SPLITS[2:] for task in dealt[split]) == list(range(10))
    assert parted([rows(0, 30), rows(100, 10)], section, 1) == dealt != parted([rows(0, 30), rows(100, 10)], section, 2)


def test_the_same_task_counts_once_in_a_stream() -> None:
    twice = [Row(number, f"content {number // 2}", "task") for number in range(40)]
    dealt = parted([twice], config(), 1)
    assert len({task.content for split in SPLITS for task in dealt[split]}) == 20


def test_the_same_task_in_two_splits_is_refused_with_both_places() -> None:
    section = config(test_challenge=TEST)
    with pytest.raises(
        ArtifactError, match=r"row \d+ of \w+ and row \d of test_challenge are the same task: 'task \d+'"
    ):
        parted([rows(0, 15), rows(10, 10)], section, 1)


def test_too_few_tasks_are_refused_by_name() -> None:
    with pytest.raises(ArtifactError, match=r"splits\.test_challenge\.tasks: x has 2 different tasks for it, not 5"):
        parted([rows(0, 17)], config(), 1)


def test_packages_are_pinned() -> None:
    with pytest.raises(ValidationError, match="is no NAME==VERSION"):
        VerifiersConfig(packages=("textarena>=0.7",))
    assert VerifiersConfig(packages=("verifiers[ta]==0.4.0",)).packages


def test_settings_are_merged_at_any_depth() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}, "d": {"e": 5}}) == {
        "a": {"b": 4, "c": 2},
        "d": {"e": 5},
    }
