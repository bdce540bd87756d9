"""Documents and rows of a small finished run, with which tests of the report and of lineage start."""

from hashlib import sha256
from pathlib import Path
from typing import Any

from tasks.core.records.scores import (
    Behaviour,
    BehaviourChange,
    Candidate,
    CorrectedSelection,
    EpisodeLimits,
    Evaluation,
    PairedScores,
    Scores,
    Selection,
    TrainingBudget,
)
from tasks.core.records.timings import Timings
from tasks.core.records.training import AdvantageSummary, EngineMismatch, Metrics

Row = dict[str, Any]


def weights_digest(key: str) -> str:
    """Return the digest of the weights that `write_weights` writes."""
    return sha256(key.encode()).hexdigest()


def write_weights(folder: Path, key: str) -> None:
    """Write the weights of the policy after iteration `key`: any bytes, which nobody loads."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(key.encode())


def metrics(**changes: Any) -> Metrics:
    """Return metrics of one update."""
    figures = {"mean_return": 0.2, "group_return_std": 0.3, "kept_rollouts": 10, "entropy": 1.0, "kl": 0.01}
    mismatch = EngineMismatch(mean=1e-6, max=1e-5, noise=1e-2, share_over_noise=0.0)
    rest = {"grad_norm": 0.5, "clip_fraction": 0.1, "engine_mismatch": mismatch}
    more = {"largest_grad_norm": 0.6, "loss": 0.1, "stopped_early": False}
    steps = {"optimizer_steps": 8, "planned_optimizer_steps": 8, "total_optimizer_steps": 8}
    return Metrics.model_validate({**figures, **rest, **more, **steps, **changes})


def advantage_summary(rollouts: int, kept: int, mean_return: float) -> AdvantageSummary:
    """Return the summary of one iteration, in which one rollout did not finish by itself."""
    return AdvantageSummary(
        mean_return=mean_return,
        group_return_std=0.3,
        rollouts=rollouts,
        finished_rollouts=rollouts,
        kept_rollouts=kept,
        end_reasons={"completed": rollouts - 1, "turn_limit": 1},
    )


def timings(**changes: Any) -> Timings:
    """Return timings of the collection of two rollouts."""
    seconds = {"wall_s": 2.0, "engine_s": 1.5, "waiting_s": 0.25, "world_s": 0.5, "tokens_per_s": 6.0}
    counts = {"generated_tokens": 12, "rollouts": 2, "end_reasons": {"completed": 2}, "world_retries": 0}
    return Timings.model_validate({**seconds, **counts, **changes})


def evaluation(key: str, tgc: float, sgc: float = 10.0) -> Evaluation:
    """Return an evaluation on six dev tasks."""
    return Evaluation(
        iteration=key,
        adapter_digest=weights_digest(key),
        tgc=tgc,
        sgc=sgc,
        tgc_se=1.0,
        sgc_se=None,
        mean_return=0.5,
        tasks=6,
        scenarios=2,
        seeds=(1,),
        per_difficulty={},
        void_rollouts=0,
    )


def behaviour(**changes: Any) -> Behaviour:
    """Return behaviour in six rollouts."""
    shares = {"multi_cell_turns": 0.1, "doc_lookups": 2.0, "assumptions": 0.0, "dummies": 0.0, "execution_errors": 0.2}
    rest = {"rollouts": 6, "turns_per_rollout": 4.0, "give_up_rate": None, "diversity": None}
    return Behaviour.model_validate({**shares, **rest, **changes})


def scores(split: str, **changes: Any) -> Scores:
    """Return scores on six tasks, which training improved."""
    selected = {"tgc": 70.0, "tgc_se": 2.0, "sgc": 50.0, "sgc_se": 3.0, "mean_return": 0.8}
    base = {"base_tgc": 30.0, "base_tgc_se": 2.0, "base_sgc": 10.0, "base_sgc_se": 1.0, "base_mean_return": 0.4}
    gains = {"tgc_gain": 40.0, "tgc_gain_se": 3.0, "sgc_gain": 40.0, "sgc_gain_se": 4.0}
    played = {"tasks": 6, "scenarios": 2, "seeds": (1, 2), "void_rollouts": 0, "per_difficulty": {}}
    what = {"split": split, "iteration": "i002", "adapter_digest": weights_digest("i002")}
    acted = {"behaviour": BehaviourChange(base=behaviour(), selected=behaviour())}
    return Scores.model_validate({**what, **selected, **base, **gains, **played, **acted, **changes})


def training_budget(of: Scores, turns: int = 20, **changes: Any) -> TrainingBudget:
    """Return the figures of `of`, except for `changes`, at a number of turns; those of `of` are at 40."""
    figures = {name: getattr(of, name) for name in PairedScores.model_fields}
    limits, test_limits = (
        EpisodeLimits(max_turns=most, max_tokens_per_turn=1500, max_observation_tokens=3000) for most in (turns, 40)
    )
    budgets = {"limits": limits, "test_limits": test_limits, "played_again": turns != 40}
    return TrainingBudget.model_validate({**figures, **budgets, **changes})


def selection(evaluated: list[str], tgc: float, sgc: float) -> Selection:
    """Return the selection of i002 among equally good policies."""
    candidates = tuple(
        Candidate(iteration=key, dev_tgc=tgc, dev_sgc=sgc, adapter_digest=weights_digest(key)) for key in evaluated
    )
    of_winner = weights_digest("i002")
    corrected = CorrectedSelection(dev_tgc=0.9 * tgc, dev_tgc_se=5.0, dev_sgc=0.8 * sgc, dev_sgc_se=None)
    return Selection(
        iteration="i002", dev_tgc=tgc, dev_sgc=sgc, adapter_digest=of_winner, candidates=candidates, corrected=corrected
    )


def played_row(task_id: str, scenario_id: str, split: str, episode_return: float, number: int, **more: Any) -> Row:
    """Return a rollout that finished by itself, without the columns in which tables of rollouts differ."""
    return {
        "task_id": task_id,
        "scenario_id": scenario_id,
        "split": split,
        "rollout_index": number,
        "seed": number,
        "return": episode_return,
        "success": episode_return == 1.0,
        "tests_passed": ["the answer is right"] if episode_return else [],
        "tests_failed": [] if episode_return == 1.0 else ["nothing else changed"],
        "end_reason": "completed",
        "turns": [{"failed": False, "code_blocks": 1, "api_calls": [], "failed_api_calls": []}],
        "sequence_begins": [0],
        "world_retries": 0,
        "adapter_digest": weights_digest("i002"),
        "engine": "transformers",
        "engine_version": "5",
        **more,
    }
