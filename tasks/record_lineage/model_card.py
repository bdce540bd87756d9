"""The README.md of a model version: what it is, how good, and the lines that pull and serve it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tasks.core.config.dag import iteration_key
from tasks.core.config.engine import serving_lines
from tasks.core.config.params import Params
from tasks.core.lineage.params_and_metrics import registered_model
from tasks.core.records.scores import PairedScores, Scores


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
        *_serving_lines(base, rank),
        "```",
        "",
        *_missing_base(base),
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


def _serving_lines(base: BaseModel | None, rank: int) -> list[str]:
    """Return the command lines by which engines serve the version."""
    if base is None:
        return serving_lines("policy", None, None, "policy")
    return serving_lines(base.place("policy"), base.revision, rank, "policy")


def _missing_base(base: BaseModel | None) -> list[str]:
    if base is None or base.inside or base.revision:
        return []
    return [f"The base model is not in this version: `dvc pull {base.name}` in the project fetches it.", ""]
