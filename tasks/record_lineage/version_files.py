"""The files of a model version: a PEFT adapter that any tool reads, its model card, and MLflow's own description.

    adapter_config.json, adapter_model.safetensors     (or config.json, model.safetensors and the tokenizer)
    base/            the base model, if it is a small local model; base.json says where it is
    README.md        the model card
    evaluation/      see `write_evaluation`
    MLmodel, code/, requirements.txt, python_env.yaml, input_example.json      for mlflow.pyfunc

Imports MLflow inside functions.
"""

import json
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tasks.core.config.dag import iteration_key
from tasks.core.config.engine import serving_lines
from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.lineage.params_and_metrics import registered_model
from tasks.core.policies.checkpoint_files import ADAPTER_CONFIG, POLICY_FILES
from tasks.core.records.documents import read_document
from tasks.core.records.files import read_json, write_json
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.scores import PairedScores, Scores
from tasks.core.records.tables import read_table
from tasks.core.registry.model_registry import FOLDER, write_evaluation
from tasks.record_lineage import served_policy


@dataclass(frozen=True)
class BaseModel:
    """The base model to which an adapter belongs."""

    name: str
    """A Hugging Face hub id, or a folder: inside the version, or the pipeline's own."""
    inside: bool
    """Whether the folder is part of the version."""
    revision: str | None

    def place(self, version: str) -> str:
        """Return the base model's id or folder once the version lies in the folder `version`."""
        return f"{version}/{self.name}" if self.inside else self.name


def model_card(
    params: Params,
    model_id: str,
    base: BaseModel | None,
    scores: list[Scores],
    tags: Mapping[str, str],
    conversations: Sequence[str] = (),
) -> str:
    """Return the card in Markdown. `base` is None for full weights, which need no base model.

    `conversations`: see `conversation_notes`.
    """
    rank = params.policy.lora.rank
    kind = f"LoRA adapter (rank {rank}) for the base model `{base.name}`" if base else "full weights"
    lines = [
        f"# {registered_model(params)}, iteration {tags['iteration']}",
        "",
        f"{_training(params, tags['iteration'])}: {kind}.",
        "",
        *score_table(scores),
        "",
        "Pull it (`MLFLOW_TRACKING_URI` names the server):",
        "",
        "```bash",
        f"mlflow artifacts download -u models:/{model_id} -d policy",
        "```",
        "",
        "Use it with transformers (and peft installed), or serve it:",
        "",
        "```python",
        *_transformers_lines(base),
        "```",
        "",
        "```bash",
        *(
            serving_lines(base.place("policy"), base.revision, rank, "policy")
            if base
            else serving_lines("policy", None, None, "policy")
        ),
        "```",
        "",
        *(
            [f"The base model is not in this version: `dvc pull {base.name}` in the project fetches it.", ""]
            if base and not (base.inside or base.revision)
            else []
        ),
        *conversations,
        "Made from:",
        "",
        *(f"- {key}: `{value}`" for key, value in sorted(tags.items()) if value),
        "",
    ]
    return "\n".join(lines)


def _training(params: Params, iteration: str) -> str:
    if iteration == iteration_key(0):
        return f"An untrained policy{' but for its warm start' if params.policy.warm_start else ''}"
    return f"A policy trained by the profile `{' '.join(params.profiles)}` (every knob: evaluation/params.json)"


def score_table(scores: Sequence[Scores]) -> list[str]:
    """Return the scores as a table in Markdown."""
    rows = [row for score in scores for row in _score_rows(score)]
    return ["| | base TGC / SGC | this policy TGC / SGC |", "|---|---|---|", *rows]


def _score_rows(score: Scores) -> Iterator[str]:
    played, budget = f"{score.split}, {score.tasks} tasks x {len(score.seeds)}", score.training_budget
    yield _score_row(played, score)
    if budget is not None and budget.played_again:
        limits = f"{budget.limits.in_words}; above {budget.test_limits.in_words}"
        yield _score_row(f"{played}, at the training budget ({limits})", budget)


def _score_row(played: str, score: PairedScores) -> str:
    before, after = f"{score.base_tgc:.1f} / {score.base_sgc:.1f}", f"{score.tgc:.1f} / {score.sgc:.1f}"
    return f"| {played} | {before} | {after} |"


def _transformers_lines(base: BaseModel | None) -> list[str]:
    first = "from transformers import AutoModelForCausalLM, AutoTokenizer"
    source = base.place("policy") if base else "policy"
    pinned = f', revision="{base.revision}"' if base and base.revision else ""
    tokenizer = f'tokenizer = AutoTokenizer.from_pretrained("{source}"{pinned})'
    model = f'model = AutoModelForCausalLM.from_pretrained("{source}"{pinned})'
    adapter = ['model.load_adapter("policy")'] if base else []
    return [first, tokenizer, model, *adapter]


SMALL_BASE_BYTES = 64 * 2**20
"""Largest size of a local base model that is copied into the version."""
REQUIREMENTS = ("torch", "transformers", "peft", "accelerate", "safetensors", "mlflow", "pandas")
BASE_FOLDER = "base"


def write_version(
    folder: Path, layout: Layout, params: Params, iteration: str, model_id: str, tags: Mapping[str, str]
) -> None:
    """Write all files of the version that the policy after `iteration` becomes. Raises ArtifactError."""
    _copy(layout.policy(iteration), folder, POLICY_FILES)
    base = _write_base(folder, layout, params)
    write_evaluation(folder / FOLDER, layout, params, iteration_key(0), iteration)
    scores = [read_document(layout.score(split), Scores) for split in TEST_SPLITS]
    adapter = base if params.policy.trained == "lora" else None
    card = model_card(params, model_id, adapter, scores, tags, _conversations(layout))
    (folder / "README.md").write_text(card, encoding="utf-8")
    _write_mlmodel(folder, model_id, _example(layout))


def _conversations(layout: Layout) -> list[str]:
    """Return the card's lines on the policy's conversations; none for a base policy without a chat template."""
    from tasks.core.policies.chat_format import ChatTemplateError
    from tasks.core.policies.chat_settings import (
        conversation_lines,
        load_chat_format,  # torch
    )

    try:
        return conversation_lines(load_chat_format(layout.base_policy))
    except ChatTemplateError:
        return []


def _write_base(folder: Path, layout: Layout, params: Params) -> BaseModel:
    """Write base.json, which tells where the base model is, and copy the base model if it is small and from no hub."""
    files = [file.name for file in layout.base_policy.iterdir() if file.is_file()]
    if params.policy.trained == "full":
        _copy(layout.base_policy, folder, [name for name in files if "token" in name or name.endswith(".jinja")])
        base = BaseModel(".", inside=True, revision=None)
    elif params.policy.revision is not None and params.policy.warm_start is None:
        base = BaseModel(params.policy.source, inside=False, revision=params.policy.revision)
    elif sum((layout.base_policy / name).stat().st_size for name in files) <= SMALL_BASE_BYTES:
        (folder / BASE_FOLDER).mkdir()
        _copy(layout.base_policy, folder / BASE_FOLDER, files)
        base = BaseModel(BASE_FOLDER, inside=True, revision=None)
    else:
        base = BaseModel(layout.base_policy.relative_to(layout.root).as_posix(), inside=False, revision=None)
    write_json(folder / "base.json", vars(base))
    path = folder / ADAPTER_CONFIG
    if path.exists() and base.revision is not None:  # peft's own field: a relative folder would mislead
        write_json(path, {**read_json(path), "base_model_name_or_path": base.name, "revision": base.revision})
    return base


def _example(layout: Layout) -> dict[str, Any]:
    """Return the opening prompt of the first rollout on Test-N, as text."""
    from tokenizers import Tokenizer

    table = read_table(layout.score_rollouts(TEST_SPLITS[0]), SCORED_ROLLOUTS)
    ids, mask = table["token_ids"][0].as_py(), table["policy_mask"][0].as_py()
    opening = ids[: mask.index(True)] if True in mask else ids
    tokenizer = Tokenizer.from_file(str(layout.base_policy / "tokenizer.json"))
    return {"prompt": [tokenizer.decode(opening, skip_special_tokens=False)]}


def _write_mlmodel(folder: Path, model_id: str, example: dict[str, Any]) -> None:
    from mlflow.models import Model, ModelSignature
    from mlflow.pyfunc import add_to_model
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    signature = ModelSignature(
        inputs=Schema([ColSpec("string", "prompt")]),
        outputs=Schema([ColSpec("string")]),
        params=ParamSchema([ParamSpec("max_new_tokens", "long", 128), ParamSpec("temperature", "double", 0.0)]),
    )
    module = Path(served_policy.__file__)
    (folder / "code").mkdir()
    shutil.copy2(module, folder / "code")
    (folder / "requirements.txt").write_text("".join(f"{name}=={version(name)}\n" for name in REQUIREMENTS))
    environment = {"python": platform.python_version(), "dependencies": ["-r requirements.txt"]}
    (folder / "python_env.yaml").write_text(json.dumps(environment))
    (folder / "input_example.json").write_text(json.dumps(example))
    model = Model(
        signature=signature,
        saved_input_example_info={"artifact_path": "input_example.json", "type": "json_object"},
        model_id=model_id,
    )
    add_to_model(model, loader_module=module.stem, data=".", code="code", python_env="python_env.yaml")  # type: ignore[no-untyped-call]
    model.save(folder / "MLmodel")


def _copy(source: Path, folder: Path, names: Iterable[str]) -> None:
    for name in names:
        if (source / name).exists():
            shutil.copyfile(source / name, folder / name)
