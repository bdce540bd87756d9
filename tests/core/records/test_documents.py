"""JSON artifacts: golden files, strictness both ways, and writes that leave no halves."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.core.records import run_manifest, scores, timings, training
from tasks.core.records.documents import Document, read_document, write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.run_manifest import Attestation, LineageRecord, RunManifest, StageVersions
from tasks.core.records.scores import Evaluation, Scores, Selection
from tasks.core.records.timings import ApiUsage, Timings, total_usage
from tasks.core.records.training import AdvantageSummary, Metrics, Preflight, UpdateTimings, WarmStartRecord

GOLDEN = Path(__file__).parent / "golden"
KINDS: dict[str, type[Document | StageVersions]] = {
    "stage_versions": StageVersions,
    "manifest": RunManifest,
    "attestation": Attestation,
    "lineage": LineageRecord,
    "timings": Timings,
    "warm_start": WarmStartRecord,
    "preflight": Preflight,
    "advantages": AdvantageSummary,
    "metrics": Metrics,
    "update_timings": UpdateTimings,
    "evaluation": Evaluation,
    "selection": Selection,
    "scores": Scores,
}
METRICS = read_document(GOLDEN / "metrics.json", Metrics)


@pytest.mark.parametrize("name", KINDS)
def test_a_golden_file_is_read_and_written_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    golden, path = GOLDEN / f"{name}.json", tmp_path / f"{name}.json"
    write_document(path, read_document(golden, KINDS[name]))
    assert path.read_bytes() == golden.read_bytes()


PARTS = """
ApiUsage Behaviour BehaviourChange Candidate CollapseWarning CorrectedSelection DifficultyScore DifficultyScores
Document EngineMismatch EpisodeLimits MetricScore MetricScores PairedScores PolicyFolder PromptInformation ResponseStats
RunsScore RunsScores StageVersion TrainingBudget WatchedStats
"""
"""Documents that are part of another one, which covers them."""


def test_every_document_has_a_golden_file() -> None:
    modules = (run_manifest, scores, timings, training)
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    models = {kind.__name__ for kind in kinds if issubclass(kind, Document | StageVersions)}
    assert models - set(PARTS.split()) == {kind.__name__ for kind in KINDS.values()}


def altered(tmp_path: Path, **changes: Any) -> Path:
    content = json.loads((GOLDEN / "selection.json").read_text()) | changes
    path = tmp_path / "selection.json"
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not ...}, default=str))
    return path


BROKEN = [
    ({"dev_tgc": 101}, "dev_tgc: Input should be less than or equal to 100"),
    ({"dev_tgc": "75"}, "dev_tgc: Input should be a valid number"),
    ({"dev_tgc": float("nan")}, "dev_tgc: Input should be a finite number"),
    ({"dev_tcg": 75.0}, "dev_tcg: Extra inputs are not permitted"),
    ({"iteration": "4"}, "iteration: String should match pattern"),
    ({"adapter_digest": None}, "adapter_digest: Input should be a valid string"),
    ({"candidates": []}, "candidates: Tuple should have at least 1 item"),
    ({"candidates": [{"iteration": "i001"}]}, "candidates.0.dev_tgc: Field required"),
]


@pytest.mark.parametrize(("changes", "message"), BROKEN)
def test_an_altered_document_names_file_field_and_rule(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = altered(tmp_path, **changes)
    with pytest.raises(ArtifactError) as refused:
        read_document(path, Selection)
    assert f"{path}: {message}" in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"played_again": False}, "training_budget: Value error, played_again is true where limits and test_limits"),
        ({"limits": {"max_turns": 50}}, "training_budget.limits.max_tokens_per_turn: Field required"),
        ({"tgc_se": -1.0}, "training_budget.tgc_se: Input should be greater than or equal to 0"),
        ({"tasks": 3}, "training_budget.tasks: Extra inputs are not permitted"),
    ],
)
def test_a_broken_training_budget_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    content = json.loads((GOLDEN / "scores.json").read_text())
    content["training_budget"] |= changes
    path = tmp_path / "test_normal.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ArtifactError) as refused:
        read_document(path, Scores)
    assert f"{path}: {message}" in str(refused.value)


def test_scores_of_before_the_training_budget_are_read(tmp_path: Path) -> None:
    content = json.loads((GOLDEN / "scores.json").read_text())
    del content["training_budget"]
    path = tmp_path / "test_normal.json"
    path.write_text(json.dumps(content))
    assert read_document(path, Scores).training_budget is None


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    content = json.loads((GOLDEN / "metrics.json").read_text())
    del content["grad_norm"]
    path.write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=r"metrics\.json: grad_norm: Field required"):
        read_document(path, Metrics)


@pytest.mark.parametrize("text", ["", '{"iteration": "i0', "[1]", "\x00\xff"])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ArtifactError, match=r"selection\.json: "):
        read_document(path, Selection)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"selection\.json: missing; run the stage that writes it"):
        read_document(tmp_path / "selection.json", Selection)


def test_figures_that_are_not_numbers_cannot_be_made() -> None:
    with pytest.raises(ValidationError, match="finite number"):
        Metrics(**{**METRICS.model_dump(), "kl": float("nan")})


def test_a_copy_that_went_round_validation_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    with pytest.raises(ArtifactError, match=r"metrics\.json: mean_return: Input should be less than or equal to 1"):
        write_document(path, METRICS.model_copy(update={"mean_return": 2.0}))
    with pytest.raises(ArtifactError, match=r"metrics\.json: deliveries: Value error, NaN and infinity are not JSON"):
        write_document(
            path,
            read_document(GOLDEN / "timings.json", Timings).model_copy(
                update={"deliveries": [{"distance": float("inf")}]}
            ),
        )
    assert not path.exists()


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.json"
    write_document(path, METRICS)
    before = path.read_bytes()

    def disk_full(self: Path, text: str, encoding: str) -> int:
        self.write_bytes(text.encode()[:10])
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_text", disk_full)
    with pytest.raises(OSError, match="No space left"):
        write_document(path, METRICS.model_copy(update={"mean_return": 0.75}))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_usage_adds_up_over_what_was_paid_for() -> None:
    def usage(model: str, answers: int) -> ApiUsage:
        counts = {"retries": 1, "prompt_tokens": 10, "cached_tokens": 2, "answer_tokens": 5, "cost_usd": 0.5}
        return ApiUsage(models=(model,), answers=answers, **counts)

    assert total_usage([None, None]) is None
    found = total_usage([usage("b", 3), None, usage("a", 4), usage("b", 5)])
    assert found is not None
    assert (found.models, found.answers, found.retries, found.prompt_tokens) == (("a", "b"), 12, 3, 30)
    assert (found.cached_tokens, found.answer_tokens, found.cost_usd) == (6, 15, 1.5)
