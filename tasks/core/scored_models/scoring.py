"""A model's score: its document, MLflow run, and log for Inspect, from its rollouts.

The log (inspect_ai.log.EvalLog, version 2, as JSON) needs no package of Inspect's. Each rollout is a sample; its
conversation is read from the tokens: the opening is one message, as the chat template wrote it.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks.core.config.params import Params
from tasks.core.evaluation.behaviour import behaviour
from tasks.core.evaluation.level_scores import split_scores
from tasks.core.evaluation.playing import SplitPlan
from tasks.core.evaluation.scored_rows import (
    Row,
    acted_rollouts,
    answers,
    mean_return,
    metric_score,
    outcomes,
    rationale,
    void_rollouts,
)
from tasks.core.interfaces.world_kind import ScoredEpisode, ScoredTrials
from tasks.core.lineage.mlflow_store import explained, open_store, tracking_uri
from tasks.core.lineage.params_and_metrics import flat_params, is_constant
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.comparison import ALL_LEVELS, ModelScore
from tasks.core.records.documents import dotted_numbers
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.records.scores import EpisodeLimits
from tasks.core.records.sequences import parts
from tasks.core.records.timings import total_usage
from tasks.core.rollouts.episode import WORLD_SEED
from tasks.core.rollouts.shards import PlayedRollouts
from tasks.core.seeding import derive_seed


def model_score(
    params: Params, plans: Sequence[SplitPlan], parts: Sequence[PlayedRollouts], chat: ChatFormat, **named: Any
) -> ModelScore:
    """Return the document of what was played; `named` are the fields that say whose score it is and what made it."""
    settings, rows = plans[0].settings, [row for part in parts for row in part.rows]
    acted = behaviour(list(acted_rollouts(rows, chat)))
    return ModelScore(
        world=params.world.name,
        seeds=tuple(seed for plan in plans for seed in plan.seeds),
        temperature=settings.temperature,
        limits=EpisodeLimits(**settings.limits.model_dump()),
        scores=split_scores(outcomes(rows), acted, metric_score(params.world.settings.own_metric, rows)),
        mean_return=mean_return(rows),
        void_rollouts=void_rollouts(rows),
        usage=total_usage(part.usage for part in parts),
        world_usage=total_usage(part.world_usage for part in parts),
        **named,
    )


def facts(score: ModelScore) -> dict[str, str]:
    """Return what a table says of a score beside the figures by difficulty."""
    paid = {"paid": score.usage, "paid by the world": score.world_usage}
    return {
        "runs": str(score.scores.rollouts_per_task),
        "mean return": f"{score.mean_return:.3f}",
        "void": str(score.void_rollouts),
        **{name: f"{one.answers:,} answers, {one.cost_usd:,.2f} USD" for name, one in paid.items() if one is not None},
    }


def scored_trials(
    score: ModelScore, params: Params, rows: Sequence[Row], chat: ChatFormat, world: Path, folder: Path
) -> ScoredTrials[Any]:
    """Return the episodes for the package that the world comes from."""
    cost, world_cost = (0.0 if used is None else used.cost_usd / len(rows) for used in (score.usage, score.world_usage))
    return ScoredTrials(
        settings=params.world.settings,
        code_blocks=params.world.code_blocks,
        world=world,
        split=score.split,
        episodes=[_episode(row, chat) for row in rows],
        trials=score.scores.rollouts_per_task,
        model=score.model.split(" ")[-1],  # without a server's address
        temperature=score.temperature,
        git_commit=score.lineage.git_commit,
        cost=cost,
        world_cost=world_cost,
        folder=folder,
    )


def _episode(row: Row, chat: ChatFormat) -> ScoredEpisode:
    return ScoredEpisode(
        task_id=row["task_id"],
        turns=tuple(answers(row, chat)),
        success=row["success"],
        passed=row["tests_passed"],
        failed=row["tests_failed"],
        trial=row["evaluation_run"],
        seed=derive_seed(row["seed"], row["world_retries"], WORLD_SEED),
    )


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
    return {
        name: {
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.answer_tokens,
            "input_tokens_cache_read": usage.cached_tokens,
            "total_tokens": usage.prompt_tokens + usage.answer_tokens,
        }
        for name, usage in used.items()
        if usage is not None
    }


def _sample(score: ModelScore, row: Row, chat: ChatFormat) -> dict[str, Any]:
    said = list(_messages(row, chat))
    last = next((one for one in reversed(said) if one["role"] == "assistant"), None)
    choices = [] if last is None else [{"message": last, "stop_reason": _STOPPED.get(row["end_reason"], "unknown")}]
    void = row["end_reason"] in VOID_REASONS
    value, earned = "C" if row["success"] else "I", {"return": row["return"]}
    verdict = {"value": value, "explanation": rationale(row), "metadata": earned}
    fault = {"message": row["end_reason"], "traceback": "", "traceback_ansi": ""}
    return {
        "id": row["task_id"],
        "epoch": _epoch(row),
        "input": said[0]["content"] if said else "",
        "target": "",
        "messages": said,
        "output": {"model": _model(score), "choices": choices},
        "scores": {"success": verdict},
        "metadata": {name: row[name] for name in ("scenario_id", "difficulty", "split", "end_reason", "seed")},
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{score.key}/{row['task_id']}/{row['evaluation_run']}")),
        **({"error": fault} if void else {}),
    }


def _messages(row: Row, chat: ChatFormat) -> Iterator[dict[str, Any]]:
    for number, (turn, ids) in enumerate(parts(row)):
        if turn >= 0:
            yield {"role": "assistant", "content": chat.decode(ids), "source": "generate"}
        else:
            yield {"role": "user", "content": chat.observation(ids) if number else chat.text_with_marks(ids)}


def _epoch(row: Row) -> int:
    return int(row["evaluation_run"]) + 1


KEY = "score_key"
"""Tag by which a score's run is found again."""


def record_score(score: ModelScore, params: Params, folder: Path, root: Path) -> None:
    """Record a score: parameters, figures, what it was made from, and the files in `folder`. Raises LineageError."""
    store, tags = open_store(params.lineage, root), {KEY: score.key}
    with explained(tracking_uri(root)):
        if store.find_run(tags, finished=True) is not None:
            return
        run = store.find_run(tags, finished=False)
        if run is None:
            run = store.client.create_run(store.experiment_id, None, tags | _tags(score), f"score {score.name}")
        run_id = str(run.info.run_id)
        store.log_params(run_id, flat_params(params))
        store.log_numbers(run_id, {0: numbers(score)})
        store.client.log_artifacts(run_id, str(folder), "score")
        store.client.set_terminated(run_id, "FINISHED")


def numbers(score: ModelScore) -> dict[str, float]:
    """Return the figures as `<split>/*`, named as a trained policy's are."""
    found = dotted_numbers(score.scores.model_dump(mode="json", exclude={"levels", "own"}))
    for level, figures in score.scores.levels.items():
        prefix = "" if level == "all" else f"per_difficulty.{level}."
        found |= {f"{prefix}{name}": value for name, value in dotted_numbers(figures.model_dump(mode="json")).items()}
    found |= {"mean_return": score.mean_return, "void_rollouts": float(score.void_rollouts)}
    found |= score.scores.own.named() if score.scores.own is not None else {}
    used = {"usage": score.usage, "world_usage": score.world_usage}
    found |= dotted_numbers({name: one.model_dump(mode="json") for name, one in used.items() if one is not None})
    return {f"{score.split}/{name.replace('.', '/')}": value for name, value in found.items() if not is_constant(name)}


def _tags(score: ModelScore) -> dict[str, str]:
    made_from = {name: str(value) for name, value in score.lineage.model_dump(mode="json").items() if value is not None}
    commit = {"mlflow.source.git.commit": score.lineage.git_commit} if score.lineage.git_commit else {}
    return {"scored_model": score.model, "model_kind": score.kind, "split": score.split} | made_from | commit
