"""A trained policy as one folder that transformers, vLLM and the hub take: written beside, proven, put in place.

model*.safetensors, config.json        the weights with the adapter merged in (or adapter_model.safetensors and
                                       adapter_config.json)
tokenizer*, chat_template.jinja, ...   the base model's own files
README.md                              the card, in the hub's form
proof.json, params.json                the logits' comparison; the parameters of the run
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from safetensors import SafetensorError

from tasks.core.config.engine import serving_lines
from tasks.core.evaluation.differences import CONFIDENCE, student
from tasks.core.exports.exported_policy import ExportedPolicy
from tasks.core.exports.logits_proof import Conversation, LogitsProof, NotProven, prove, reference
from tasks.core.policies.chat_settings import CHAT_SETTINGS
from tasks.core.policies.checkpoint_files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    DIGESTS,
    FULL_CONFIG,
    MODEL_CARD,
    holds_adapter,
    require,
)
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError, read_json, replacing, write_json
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


_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".gguf", ".pt", ".pth")
_OWN = (DIGESTS, MODEL_CARD, CHAT_SETTINGS)
"""Files of a base policy's folder that are not the model's."""
_READABLE = 0o644
"""Mode of the weights, which safetensors writes for their owner alone."""


class CannotMerge(ValueError):  # noqa: N818
    """This base model's weights can't hold the adapter; the message says what can be exported."""


def export_model(
    policy: ExportedPolicy, folder: Path, conversations: Sequence[Conversation], *, adapter: bool
) -> LogitsProof:
    """Write `policy` into the new folder, prove it, and put it in place; `adapter` leaves the base's weights out.

    Raises ArtifactError for a folder that holds something or can't be written, CannotMerge and ValueError where the
    base model cannot take the adapter, and NotProven. Nothing is left behind then.
    """
    require_new(folder)
    if adapter and not holds_adapter(policy.checkpoint):
        raise ArtifactError(f"{policy.checkpoint}: all weights were trained, so there is no adapter to export")
    if not adapter and (quantised := read_json(policy.base / FULL_CONFIG).get("quantization_config")):
        raise CannotMerge(
            f"{policy.base}: the base model is quantised ({quantised.get('quant_method', '?')}): merged weights would "
            "have to be quantised anew, which changes them all; export the adapter alone (`--adapter`)"
        )
    expected, model = reference(policy.base, policy.checkpoint, policy.config, conversations)
    with replacing(folder) as temporary:
        temporary.mkdir()
        _write_adapter(policy, temporary) if adapter else write_merged(model, temporary)
        _copy_companions(policy.base, temporary)
        del model  # two might not fit
        loaded, beside = (policy.base, temporary) if adapter else (temporary, None)
        try:
            proof = prove(loaded, beside, policy.config, conversations, expected)
        except NotProven as error:
            raise NotProven(f"{folder}: not exported, since {error}") from None
        write_document(temporary / "proof.json", proof)
        write_json(temporary / "params.json", dict(policy.knobs))
        (temporary / MODEL_CARD).write_text(model_page(policy, proof, adapter), encoding="utf-8")
        require_new(folder)
    return proof


def require_new(folder: Path) -> None:
    """Raise ArtifactError for a folder that holds something, or a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArtifactError(f"{folder}: exists and is not an empty folder; name a new one")


def write_merged(model: Any, folder: Path) -> None:
    """Write all weights, those of an adapter merged into the base's."""
    whole = model.merge_and_unload(safe_merge=True) if hasattr(model, "merge_and_unload") else model
    try:
        whole.save_pretrained(folder)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"{folder}: can't be written: {error}") from None
    for file in folder.glob("*.safetensors"):
        file.chmod(_READABLE)


def _write_adapter(policy: ExportedPolicy, folder: Path) -> None:
    shutil.copyfile(require(policy.checkpoint / ADAPTER_WEIGHTS), folder / ADAPTER_WEIGHTS)
    settings = read_json(policy.checkpoint / ADAPTER_CONFIG)
    if policy.hub_base is not None:
        settings |= {"base_model_name_or_path": policy.hub_base, "revision": policy.config.revision}
    write_json(folder / ADAPTER_CONFIG, settings)


def _copy_companions(base: Path, folder: Path) -> None:
    """Copy the base model's files beside its weights and its config: tokenizer, chat template, licence, ..."""
    for file in sorted(base.iterdir()):
        if file.is_file() and file.name not in (*_OWN, FULL_CONFIG) and not file.name.endswith(_WEIGHTS):
            shutil.copyfile(file, folder / file.name)
