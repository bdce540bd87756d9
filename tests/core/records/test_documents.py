"""JSON artifacts: golden files, strictness both ways, and writes that leave no halves."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.core.records import monitoring, run_manifest, scores, timings, training
from tasks.core.records.api_usage import ApiUsage, total_usage
from tasks.core.records.documents import Document, read_document, write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.run_manifest import (
    Attestation,
    LineageRecord,
    PolicyFolder,
    RunManifest,
    StageVersion,
    StageVersions,
)
from tasks.core.records.scores import (
    Behaviour,
    BehaviourChange,
    Candidate,
    CorrectedSelection,
    DifficultyScore,
    DifficultyScores,
    EpisodeLimits,
    Evaluation,
    MetricScore,
    MetricScores,
    RunsScores,
    Scores,
    Selection,
    TrainingBudget,
)
from tasks.core.records.timings import Timings
from tasks.core.records.training import (
    AdvantageSummary,
    EngineMismatch,
    Metrics,
    Preflight,
    PromptInformation,
    ResponseStats,
    UpdateTimings,
    WarmStartRecord,
)

GOLDEN = Path(__file__).parent / "golden"
DIGEST = "ab" * 32

METRICS = Metrics(
    mean_return=0.5,
    group_return_std=0.25,
    kept_rollouts=120,
    lost_rollouts=3,
    shrunk_groups=2,
    responses=ResponseStats(length=96.5, repetition=0.125, distinct=0.75),
    prompt_information=PromptInformation(nats=1.5, share=0.75, prompts=8, responses=16),
    entropy=0.75,
    kl=0.001,
    grad_norm=0.5,
    clip_fraction=0.125,
    engine_mismatch=EngineMismatch(mean=1e-6, max=1e-5, noise=1e-2, share_over_noise=0.0),
    largest_grad_norm=1.5,
    loss=-0.25,
    value_loss=0.03125,
    staleness=1,
    behaviour_kl=0.002,
    behaviour_weight=1.0625,
    capped_behaviour_weights=0.03125,
    optimizer_steps=7,
    planned_optimizer_steps=8,
    total_optimizer_steps=23,
    stopped_early=True,
)
BEHAVIOUR = Behaviour(
    rollouts=336,
    turns_per_rollout=4.0,
    multi_cell_turns=0.08,
    doc_lookups=3.0,
    assumptions=0.5,
    dummies=0.25,
    give_up_rate=None,
    execution_errors=0.125,
    diversity=1.0,
)
EXAMPLES: dict[str, Document | StageVersions] = {
    "stage_versions": StageVersions({"filter_tasks": StageVersion(code="0123456789abcdef", params="f" * 16)}),
    "manifest": RunManifest(
        params={"tasks": {"max_difficulty": 2}},
        params_file="a" * 64,
        files={"tasks/__init__.py": "b" * 64},
        stages={"filter_tasks": ("tasks/__init__.py",)},
        machine="portable, torch 2.13.0",
        libraries={"torch": "2.13.0"},
    ),
    "attestation": Attestation(
        stage="update_policy",
        key="i003",
        version=StageVersion(code="0123456789abcdef", params="f" * 16),
        outs={"data/iterations/i003/policy": "d41d8cd98f00b204e9800998ecf8427e.dir"},
        machine="portable, torch 2.13.0",
    ),
    "lineage": LineageRecord(
        pipeline_digest="1" * 64,
        params_digest="2" * 64,
        iteration="i003",
        adapter_digest=DIGEST,
        policy=PolicyFolder(path="data/iterations/i003/policy", md5="d41d8cd98f00b204e9800998ecf8427e.dir"),
        experiment="loopline",
        registered_model=None,
        task_versions={"update_policy": "0123456789abcdef" * 2},
    ),
    "timings": Timings(
        clocks={"t#0": [1000.0, 1001.5]},
        wall_s=2.5,
        engine_s=2.0,
        waiting_s=0.25,
        world_s=1.5,
        generated_tokens=10000,
        tokens_per_s=4000.0,
        rollouts=144,
        end_reasons={"completed": 140, "cut_by_early_stop": 4},
        world_retries=2,
        world_faults={"the referee has left": 2},
    ),
    "warm_start": WarmStartRecord(losses=(2.5, 1.25)),
    "preflight": Preflight(positions=32768, rollouts=8, ranks=8, passes="packed"),
    "advantages": AdvantageSummary(
        mean_return=0.5,
        group_return_std=0.25,
        rollouts=144,
        finished_rollouts=140,
        kept_rollouts=0,
        end_reasons={"completed": 140, "cut_by_early_stop": 4},
        responses=ResponseStats(length=96.5, repetition=0.125, distinct=0.75),
        note="every advantage is zero",
        success_rate=0.25,
        groups=24,
        mixed_groups=0.75,
        left_out_groups=0,
        lost_rollouts=3,
        shrunk_groups=2,
        dropped_low_variance_group=8,
        dropped_small_advantage=132,
        dropped_without_tokens=0,
        dropped_lone_rollouts=0,
    ),
    "metrics": METRICS,
    "update_timings": UpdateTimings(tokens_per_s=17000.0, update_s=1.5),
    "evaluation": Evaluation(
        own=MetricScore(name="score", value=31.5, value_se=None),
        iteration="i004",
        adapter_digest=DIGEST,
        tgc=75.0,
        sgc=50.0,
        tgc_se=4.5,
        sgc_se=None,
        mean_return=0.875,
        tasks=60,
        scenarios=20,
        seeds=(2**62,),
        per_difficulty={"1": DifficultyScore(tasks=30, tgc=80.0, tgc_se=5.0)},
        void_rollouts=0,
        usage=ApiUsage(
            models=("gpt-4o-2024-11-20",),
            answers=300,
            retries=2,
            prompt_tokens=2_000_000,
            cached_tokens=500_000,
            answer_tokens=45_000,
            cost_usd=4.825,
        ),
    ),
    "selection": Selection(
        iteration="i004",
        dev_tgc=75.0,
        dev_sgc=50.0,
        adapter_digest=DIGEST,
        candidates=(Candidate(iteration="i004", dev_tgc=75.0, dev_sgc=50.0, adapter_digest=DIGEST),),
        corrected=CorrectedSelection(dev_tgc=70.0, dev_tgc_se=5.0, dev_sgc=45.0, dev_sgc_se=6.0),
    ),
    "scores": Scores(
        own=MetricScores(name="score", value=31.5, value_se=2.0, base=20.0, base_se=2.5, gain=11.5, gain_se=1.0),
        split="test_normal",
        iteration="i004",
        adapter_digest=DIGEST,
        tgc=75.0,
        sgc=50.0,
        tgc_se=3.0,
        sgc_se=5.0,
        base_tgc=35.0,
        base_sgc=10.0,
        base_tgc_se=3.5,
        base_sgc_se=4.0,
        tgc_gain=40.0,
        tgc_gain_se=3.25,
        sgc_gain=40.0,
        sgc_gain_se=5.5,
        mean_return=0.875,
        base_mean_return=0.5,
        tasks=168,
        scenarios=56,
        seeds=(1, 2, 3),
        per_difficulty={"1": DifficultyScores(tasks=84, tgc=80.0, tgc_se=5.0, base_tgc=40.0, base_tgc_se=5.0)},
        per_k={
            "3": RunsScores(
                pass_hat=60.0, pass_hat_se=4.0, best_of=85.0, best_of_se=2.5, base_pass_hat=20.0, base_best_of=50.0
            )
        },
        behaviour=BehaviourChange(base=BEHAVIOUR, selected=BEHAVIOUR),
        void_rollouts=1,
        training_budget=TrainingBudget(
            limits=EpisodeLimits(max_turns=50, max_tokens_per_turn=1500, max_observation_tokens=3000),
            test_limits=EpisodeLimits(max_turns=100, max_tokens_per_turn=1500, max_observation_tokens=3000),
            played_again=True,
            tgc=65.0,
            sgc=40.0,
            tgc_se=3.5,
            sgc_se=5.0,
            base_tgc=30.0,
            base_sgc=5.0,
            base_tgc_se=3.0,
            base_sgc_se=2.5,
            tgc_gain=35.0,
            tgc_gain_se=3.75,
            sgc_gain=35.0,
            sgc_gain_se=5.25,
            mean_return=0.75,
            base_mean_return=0.375,
            void_rollouts=0,
        ),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_document_is_written_as_the_golden_file_and_read_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.json"
    write_document(path, EXAMPLES[name])
    assert path.read_text() == (GOLDEN / f"{name}.json").read_text()
    assert read_document(path, type(EXAMPLES[name])) == EXAMPLES[name]


def test_every_document_has_an_example() -> None:
    """Those that are part of another one are covered by it."""
    parts = {"Document", "EngineMismatch", "DifficultyScore", "DifficultyScores", "Candidate"}
    parts |= {
        "Behaviour",
        "BehaviourChange",
        "ApiUsage",
        "PolicyFolder",
        "StageVersion",
        "CorrectedSelection",
        "MetricScore",
        "MetricScores",
    }
    parts |= {"RunsScore", "RunsScores", "PairedScores", "TrainingBudget", "EpisodeLimits"}
    parts |= {"ResponseStats", "PromptInformation", "WatchedStats", "CollapseWarning"}
    models = {
        n
        for module in (monitoring, run_manifest, scores, timings, training)
        for n, v in vars(module).items()
        if isinstance(v, type) and issubclass(v, Document | StageVersions)
    } - parts
    assert models == {type(example).__name__ for example in EXAMPLES.values()}


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
        write_document(path, EXAMPLES["timings"].model_copy(update={"deliveries": [{"distance": float("inf")}]}))
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
