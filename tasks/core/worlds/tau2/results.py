"""A score as the package's own results file, which its leaderboard's tools read."""

import json
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm

from tasks.core.interfaces.world import ExecutionTimeout
from tasks.core.interfaces.world_kind import ScoredEpisode, ScoredTrials
from tasks.core.worlds.tau2.episode import MAX_ERRORS, MAX_STEPS
from tasks.core.worlds.tau2.kind import Tau2Config
from tasks.core.worlds.tau2.users import SAMPLING
from tasks.core.worlds.tau2.world import Tau2World, open_tau2

AGENTS = {"solo": ("llm_agent_solo", "dummy_user"), "user": ("llm_agent", "user_simulator")}
"""The package's names for an agent and its user, by mode."""


def write_results(trials: ScoredTrials[Tau2Config]) -> None:
    """Write `trials.folder`/tau2_DOMAIN.json: the episodes, played again turn by turn, with the package's verdicts.

    A simulated user says again what it said, from the file of paid answers. Raises WorldFault and ChatApiError.
    """
    world = open_tau2(trials.settings, trials.code_blocks, trials.world)
    try:
        shown = tqdm(trials.episodes, desc="the package's results file", unit="episode", leave=False, disable=None)
        records = [_record(world, trials, episode) for episode in shown]
        about = world.pool.answer({"about": True})
    finally:
        world.close()
    results = {
        "info": _info(trials, about),
        "tasks": list({record["task"]["id"]: record["task"] for record in records}.values()),
        "simulations": [record["simulation"] for record in records],
    }
    trials.folder.mkdir()
    path = trials.folder / f"tau2_{trials.settings.domain}.json"
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False), encoding="utf-8")


def _record(world: Tau2World, trials: ScoredTrials[Tau2Config], scored: ScoredEpisode) -> dict[str, Any]:
    """Return the package's task and simulation of an episode."""
    episode = world.open(scored.task_id, scored.seed)
    try:
        for text in scored.turns:
            if episode.step(text).done:
                break
    except ExecutionTimeout:
        pass  # as when it was played
    finally:
        episode.close()
    record: dict[str, Any] = world.pool.answer({"record": scored.task_id, **episode.played})
    simulation = record["simulation"]
    simulation |= {"id": f"{scored.task_id} {scored.trial}", "trial": scored.trial, "seed": scored.seed % 2**31}
    return record | {"simulation": simulation | {"agent_cost": trials.cost, "user_cost": trials.world_cost}}


def _info(trials: ScoredTrials[Tau2Config], about: dict[str, Any]) -> dict[str, Any]:
    agent, user = AGENTS[trials.settings.mode]
    return {
        "git_commit": trials.git_commit or "unknown",
        "num_trials": trials.trials,
        "max_steps": MAX_STEPS,
        "max_errors": MAX_ERRORS,
        "agent_info": {"implementation": agent, "llm": trials.model, "llm_args": {"temperature": trials.temperature}},
        "user_info": {"implementation": user, **dict(_user(trials.settings))},
        "environment_info": {"domain_name": trials.settings.domain, "policy": about["policy"]},
    }


def _user(settings: Tau2Config) -> Iterator[tuple[str, Any]]:
    if settings.mode == "user":
        yield "llm", settings.user.request.model if settings.user.by == "model" else "a script"
        yield "llm_args", {"temperature": SAMPLING.temperature}
