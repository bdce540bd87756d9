"""The README.md of an exported model, in the form of the Hugging Face hub's model cards. Pure."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from tasks.core.config.engine import serving_lines
from tasks.core.evaluation.differences import CONFIDENCE, student
from tasks.core.exports.exported_policy import ExportedPolicy
from tasks.core.exports.logits_proof import LogitsProof
from tasks.core.records.scores import Scores

_TEMPLATE = Path(__file__).with_name("model_card.md")
_TRAINING = (
    "iterations",
    "collection.tasks_per_iteration",
    "collection.rollouts_per_task",
    "advantages.estimator",
    "update.objective",
    "update.learning_rate",
    "policy.trained",
    "policy.dtype",
    "seed",
)
"""Knobs that the card lists; params.json beside it has all."""


def model_page(policy: ExportedPolicy, proof: LogitsProof, adapter: bool) -> str:
    """Return the card. `adapter`: the folder holds an adapter alone, no merged weights."""
    card = ModelCard.from_template(
        _metadata(policy, adapter),
        template_path=str(_TEMPLATE),
        policy=policy,
        proof=proof,
        adapter=adapter,
        warm=policy.knobs.get("policy.warm_start", "null") != "null",
        rows=[row for score in policy.scores for row in _rows_of(score)],
        confidence=f"{CONFIDENCE:.0%}",
        training={name: policy.knobs[name] for name in _TRAINING if name in policy.knobs},
        **_use(policy, adapter),
    )
    return f"{card}\n"


def _metadata(policy: ExportedPolicy, adapter: bool) -> ModelCardData:
    relation: dict[str, Any] = {"base_model_relation": "adapter" if adapter else "finetune"}
    return ModelCardData(
        base_model=policy.hub_base,
        license=policy.licence,
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["loopline", "reinforcement-learning", "agent", policy.knobs["world.name"]],
        model_name=policy.name,
        eval_results=list(_results(policy)) or None,
        **(relation if policy.hub_base else {}),
    )


def _results(policy: ExportedPolicy) -> Iterator[EvalResult]:
    world = policy.knobs["world.name"]
    for score in policy.scores:
        for metric, value in (("tgc", score.tgc), ("sgc", score.sgc)):
            yield EvalResult(
                task_type="text-generation",
                dataset_type=world,
                dataset_name=world,
                dataset_split=score.split,
                metric_type=metric,
                metric_name=metric.upper(),
                metric_value=round(value, 2),
            )


def _rows_of(score: Scores) -> Iterator[str]:
    for metric in ("tgc", "sgc"):
        figures = [(f"base_{metric}", False), (metric, False), (f"{metric}_gain", True)]
        cells = [
            _interval(getattr(score, name), getattr(score, f"{name}_se"), score.scenarios, signed)
            for name, signed in figures
        ]
        played = f"{score.split}, {score.tasks} tasks x {len(score.seeds)}"
        yield f"| {' | '.join([played, metric.upper(), *cells])} |"


def _interval(value: float, error: float | None, scenarios: int, signed: bool) -> str:
    """Return a figure with its interval; one that is no difference ends at 0 and at 100."""
    form = "+.1f" if signed else ".1f"
    if not error:
        return f"{value:{form}}"
    reach, _ = student(value, error, scenarios - 1, CONFIDENCE)
    low, high = value - reach, value + reach
    ends = (low, high) if signed else (max(0.0, low), min(100.0, high))
    return f"{value:{form}} [{ends[0]:{form}}, {ends[1]:{form}}]"


def _use(policy: ExportedPolicy, adapter: bool) -> dict[str, Any]:
    """Return how to load and serve the folder, which is called FOLDER here, since it may be moved.

    An adapter needs its base model: an id of the hub, or a folder that whoever shares the adapter has to share too.
    """
    base = policy.hub_base or "BASE"
    revision = policy.knobs.get("policy.revision") if policy.hub_base else None
    pinned = f', revision="{revision}"' if revision else ""
    rank = int(policy.knobs.get("policy.lora.rank", "8"))
    serving = (
        serving_lines(base, revision, rank, "FOLDER") if adapter else serving_lines("FOLDER", None, None, "FOLDER")
    )
    return {"loaded": f'"{base}"{pinned}' if adapter else '"FOLDER"', "serving": serving}
