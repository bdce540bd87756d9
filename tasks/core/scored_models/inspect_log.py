"""A score as an evaluation log of Inspect (inspect_ai.log.EvalLog, version 2, as JSON), which `inspect view` opens.

Needs no package of Inspect's. Each rollout is a sample; its conversation is the rollout's own, read from the tokens:
the opening is one message, as the chat template wrote it.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks.core.evaluation.scored_rows import Row, rationale
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.comparison import ALL_LEVELS, ModelScore
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.records.sequences import parts
from tasks.core.records.timings import ApiUsage

INSPECT = "inspect"
"""Folder of a score's log."""
VERSION = 2
_STOPPED = {"completed": "stop", "turn_limit": "max_tokens", "context_limit": "model_length"}


def write_inspect_log(folder: Path, score: ModelScore, rows: Sequence[Row], chat: ChatFormat) -> Path:
    """Write the log into `folder`, under a name that `inspect view` takes for a log's: it begins with the time."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    path = folder / f"{now.replace(':', '-')}_{score.world}-{score.split}_{score.key[:22]}.json"
    folder.mkdir()
    path.write_text(inspect_log(score, rows, chat, now), encoding="utf-8")
    return path


def inspect_log(score: ModelScore, rows: Sequence[Row], chat: ChatFormat, now: str) -> str:
    """Return the log as JSON; `now` is the time of ISO 8601 with its zone."""
    runs = score.scores.rollouts_per_task
    log = {
        "version": VERSION,
        "status": "success",
        "eval": _spec(score, rows, now),
        "plan": {"name": "loopline", "steps": [], "config": {"temperature": score.temperature}},
        "results": {"total_samples": len(rows), "completed_samples": len(rows), "scores": _scores(score)},
        "stats": {"started_at": now, "completed_at": now, "model_usage": _usage(score)},
        "samples": [_sample(score, row, chat) for row in sorted(rows, key=lambda row: (row["task_id"], _epoch(row)))],
    }
    log["eval"]["config"] = {"epochs": runs, "epochs_reducer": ["mean"]}  # type: ignore[index]
    return json.dumps(log, allow_nan=False)


def _spec(score: ModelScore, rows: Sequence[Row], now: str) -> dict[str, Any]:
    tasks = sorted({row["task_id"] for row in rows})
    lineage, revision = score.lineage.model_dump(), {}
    if score.lineage.git_commit:
        revision = {"revision": {"type": "git", "origin": "", "commit": score.lineage.git_commit}}
    return {
        "eval_id": score.key[:22],
        "run_id": score.key[:22],
        "created": now,
        "task": f"loopline/{score.world}",
        "task_id": f"{score.world}-{score.split}",
        "task_args": {"split": score.split, **score.limits.model_dump()},
        "dataset": {"name": f"{score.world} {score.split}", "samples": len(tasks), "sample_ids": tasks},
        "model": _model(score),
        "packages": {"loopline": score.lineage.loopline},
        "metadata": {"kind": score.kind, "seeds": list(score.seeds), **lineage},
        **revision,
    }


def _model(score: ModelScore) -> str:
    """Return the model's name as Inspect has them, with a provider before it."""
    return score.model if "/" in score.model else f"loopline/{score.model}"


def _scores(score: ModelScore) -> list[dict[str, Any]]:
    of_all = score.scores.levels[ALL_LEVELS]
    figures = {"accuracy": of_all.tgc / 100, "sgc": of_all.sgc / 100, "mean_return": score.mean_return}
    if of_all.tgc_se is not None:
        figures["stderr"] = of_all.tgc_se / 100
    figures |= {f"pass^{k}": found.pass_hat / 100 for k, found in score.scores.per_k.items() if k != "1"}
    metrics = {name: {"name": name, "value": value} for name, value in figures.items()}
    return [{"name": "success", "scorer": "success", "reducer": "mean", "metrics": metrics}]


def _usage(score: ModelScore) -> dict[str, Any]:
    used = {_model(score): score.usage, "loopline/world": score.world_usage}
    return {name: _tokens(usage) for name, usage in used.items() if usage is not None}


def _tokens(used: ApiUsage) -> dict[str, int]:
    tokens = {"input_tokens": used.prompt_tokens, "output_tokens": used.answer_tokens}
    cached = {"input_tokens_cache_read": used.cached_tokens, "total_tokens": used.prompt_tokens + used.answer_tokens}
    return tokens | cached


def _sample(score: ModelScore, row: Row, chat: ChatFormat) -> dict[str, Any]:
    said = list(_messages(row, chat))
    last = next((one for one in reversed(said) if one["role"] == "assistant"), None)
    choices = [] if last is None else [{"message": last, "stop_reason": _STOPPED.get(row["end_reason"], "unknown")}]
    void = row["end_reason"] in VOID_REASONS
    fault = {"message": row["end_reason"], "traceback": "", "traceback_ansi": ""}
    return {
        "id": row["task_id"],
        "epoch": _epoch(row),
        "input": said[0]["content"] if said else "",
        "target": "",
        "messages": said,
        "output": {"model": _model(score), "choices": choices},
        "scores": {"success": _verdict(row)},
        "metadata": {name: row[name] for name in ("scenario_id", "difficulty", "split", "end_reason", "seed")},
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{score.key}/{row['task_id']}/{row['evaluation_run']}")),
        **({"error": fault} if void else {}),
    }


def _verdict(row: Row) -> dict[str, Any]:
    return {
        "value": "C" if row["success"] else "I",
        "explanation": rationale(row),
        "metadata": {"return": row["return"]},
    }


def _messages(row: Row, chat: ChatFormat) -> Iterator[dict[str, Any]]:
    for number, (turn, ids) in enumerate(parts(row)):
        if turn >= 0:
            yield {"role": "assistant", "content": chat.decode(ids), "source": "generate"}
        else:
            yield {"role": "user", "content": chat.observation(ids) if number else chat.text_with_marks(ids)}


def _epoch(row: Row) -> int:
    return int(row["evaluation_run"]) + 1
