"""The README.md of an exported model, in the form of the Hugging Face hub's model cards. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from tasks.core.config.engine import serving_lines
from tasks.core.evaluation.differences import CONFIDENCE, student
from tasks.core.exports.exported_policy import ExportedPolicy
from tasks.core.exports.logits_proof import LogitsProof
from tasks.core.records.scores import Scores

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
    lines = [
        f"---\n{_metadata(policy, adapter).to_yaml()}\n---",
        f"# {policy.name}, iteration {policy.iteration}",
        "",
        _what(policy, adapter),
        "",
        "## Scores",
        "",
        *_score_lines(policy.scores),
        "",
        "## Data",
        "",
        _data(policy.knobs),
        "",
        *(f"- `{name}: {policy.knobs[name]}`" for name in _TRAINING if name in policy.knobs),
        "",
        "## Use it",
        "",
        *_use_lines(policy, adapter),
        "",
        *policy.conversations,
        "## Proof",
        "",
        *_proof_lines(proof, adapter),
        "",
        "## Licence",
        "",
        _licence_line(policy.licence),
        "",
        "## Made from",
        "",
        *(f"- {name}: `{value}`" for name, value in sorted(policy.made_from.items()) if value),
        "",
    ]
    return "\n".join(lines)


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


def _what(policy: ExportedPolicy, adapter: bool) -> str:
    revision = policy.knobs.get("policy.revision", "null")
    base = f"`{policy.config.source}`" + (f" at `{revision}`" if revision != "null" else "")
    warm = "" if policy.knobs.get("policy.warm_start", "null") == "null" else ", after a supervised warm start"
    if adapter:
        kind = "A LoRA adapter for"
    else:
        kind = (
            "The trained LoRA adapter merged into" if policy.config.trained == "lora" else "All weights, trained from"
        )
    world = policy.knobs["world.name"]
    return f"{kind} the base model {base}{warm}. It was trained as an agent in the world `{world}` by loopline."


def _data(knobs: Mapping[str, str]) -> str:
    return (
        f"The training tasks of the world `{knobs['world.name']}` (`world.seed: {knobs['world.seed']}`), played by the "
        "policy itself. All parameters are in `params.json`; the main ones:"
    )


def _score_lines(scores: Sequence[Scores]) -> list[str]:
    if not scores:
        return ["The run has not scored this policy yet."]
    head = ["| split | | base | this model | gain |", "|---|---|---|---|---|"]
    note = (
        f"In percent, with {CONFIDENCE:.0%} intervals over scenarios. TGC: tasks solved; SGC: scenarios solved whole."
    )
    return [*head, *(line for score in scores for line in _rows_of(score)), "", note]


def _rows_of(score: Scores) -> Iterator[str]:
    played = f"{score.split}, {score.tasks} tasks x {len(score.seeds)}"
    yield f"| {played} | TGC | {_cells(score, 'tgc')} |"
    yield f"| {played} | SGC | {_cells(score, 'sgc')} |"


def _cells(score: Scores, metric: str) -> str:
    figures = [(f"base_{metric}", False), (metric, False), (f"{metric}_gain", True)]
    return " | ".join(
        _interval(getattr(score, name), getattr(score, f"{name}_se"), score.scenarios, signed)
        for name, signed in figures
    )


def _interval(value: float, error: float | None, scenarios: int, signed: bool) -> str:
    """Return a figure with its interval; one that is no difference ends at 0 and at 100."""
    form = "+.1f" if signed else ".1f"
    if not error:
        return f"{value:{form}}"
    reach, _ = student(value, error, scenarios - 1, CONFIDENCE)
    low, high = value - reach, value + reach
    ends = (low, high) if signed else (max(0.0, low), min(100.0, high))
    return f"{value:{form}} [{ends[0]:{form}}, {ends[1]:{form}}]"


def _use_lines(policy: ExportedPolicy, adapter: bool) -> list[str]:
    """Return how to load and serve the folder, which is called FOLDER here, since it may be moved.

    An adapter needs its base model: an id of the hub, or a folder that whoever shares the adapter has to share too.
    """
    base = policy.hub_base or "BASE"
    revision = policy.knobs.get("policy.revision") if policy.hub_base else None
    pinned = f', revision="{revision}"' if revision else ""
    model = f'"{base}"{pinned}' if adapter else '"FOLDER"'
    python = [
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        f'model = AutoModelForCausalLM.from_pretrained({model}, dtype="{policy.config.dtype}")',
        *(['model.load_adapter("FOLDER")'] if adapter else []),
    ]
    local = [f"BASE is the base model's folder, made by the run (`{policy.config.source}`).", ""]
    return [
        *(local if adapter and policy.hub_base is None else []),
        *("```python", *python, "```", "", "```sh", *_serving(policy, adapter, base, revision), "```"),
    ]


def _serving(policy: ExportedPolicy, adapter: bool, base: str, revision: str | None) -> list[str]:
    rank = int(policy.knobs.get("policy.lora.rank", "8"))
    if not adapter:
        return serving_lines("FOLDER", None, None, "FOLDER")
    return serving_lines(base, revision, rank, "FOLDER")


def _proof_lines(proof: LogitsProof, adapter: bool) -> list[str]:
    packages = ", ".join(f"{name} {version}" for name, version in sorted(proof.packages.items()))
    loaded = "the base model and this adapter" if adapter else "this folder"
    ours, base = proof.from_policy, proof.from_base
    return [
        f"A fresh process loaded {loaded} with {packages} alone, on {proof.device} in {proof.dtype}. Its logits at "
        f"{proof.positions} positions of {proof.conversations} recorded conversations, beside those of",
        "",
        "| | root mean square of the difference | largest | same likeliest token |",
        "|---|---|---|---|",
        f"| base and adapter, as trained | {ours.rms:.3g} | {ours.largest:.3g} | {ours.same_choice:.1%} |",
        f"| the base model | {base.rms:.3g} | {base.largest:.3g} | {base.same_choice:.1%} |",
        "",
        f"The logits' own root mean square is {proof.rms_of_logits:.3g}; rounding explains {proof.limit:.3g} "
        "(`proof.json`).",
    ]


def _licence_line(licence: str | None) -> str:
    if licence is None:
        return "The base model names none. Ask its makers before you share this model."
    return f"That of the base model: {licence}."
