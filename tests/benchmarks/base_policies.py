"""Scores of the text games' base policies before any training, and how much their groups can teach.

    python tests/benchmarks/base_policies.py [WORLD=FOLDER ...]

On train: 48 tasks, 16 rollouts of each at temperature 1: the success rate, the share of groups with both successes and
failures, and of groups whose returns differ. On the test splits: every task once at temperature 0.5, as the profiles
score. Tokens are those of an episode on train.
"""

import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from result_file import write_result

from flows.params_file import params_of
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.world import Task
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_base_model, load_tokenizer
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts

Row = dict[str, Any]
WORLDS = ("bandit", "frozen_lake", "sokoban", "webshop")
TASKS, ROLLOUTS = 48, 16


class Player:
    """A base policy in its world."""

    def __init__(self, name: str, folder: Path, scratch: Path) -> None:
        params = params_of(name)
        self.collection = params.collection
        prepare_world_folder(params.world, scratch / name)
        self.world = open_world(params.world, scratch / name)
        self.engine = TransformersEngine(load_base_model(folder, PolicyConfig(device="cpu")))
        self.chat = ChatFormat(load_tokenizer(folder))

    def play(self, tasks: list[Task], rollouts: int, temperature: float) -> list[Row]:
        settings = replace(PlaySettings.of_training(self.collection), temperature=temperature)
        planned = plan_rollouts(tasks, rollouts, seed=1)
        return play_rollouts(self.world, self.engine, self.chat, planned, settings, policy=None)


def measure(name: str, folder: Path, scratch: Path) -> dict[str, float]:
    player = Player(name, folder, scratch)
    rows = player.play(list(player.world.tasks("train"))[:TASKS], ROLLOUTS, temperature=1.0)
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["task_id"]].append(row)
    figures = {
        "parameters": float(sum(weight.numel() for weight in load_base_model(folder, PolicyConfig()).parameters())),
        "train_success": _success(rows),
        "train_mean_return": statistics.mean(row["return"] for row in rows),
        "groups_with_both": statistics.mean(len({row["success"] for row in group}) == 2 for group in groups.values()),
        "groups_with_signal": statistics.mean(len({row["return"] for row in group}) > 1 for group in groups.values()),
        "tokens_per_episode": statistics.mean(len(row["token_ids"]) for row in rows),
        "generated_per_episode": statistics.mean(sum(row["policy_mask"]) for row in rows),
    }
    for split in ("test_normal", "test_challenge"):
        played = player.play(list(player.world.tasks(split)), 1, temperature=0.5)
        figures |= {f"{split}_success": _success(played)}
        figures |= {f"{split}_mean_return": statistics.mean(row["return"] for row in played)}
    return {figure: round(value, 4) for figure, value in figures.items()}


def _success(rows: list[Row]) -> float:
    return statistics.mean(row["success"] for row in rows)


def main() -> None:
    torch.set_num_threads(1)
    asked = dict(argument.partition("=")[::2] for argument in sys.argv[1:]) or dict.fromkeys(WORLDS, "")
    folders = {name: Path(folder or f"data/base_policies/{name}") for name, folder in asked.items()}
    with tempfile.TemporaryDirectory() as scratch:
        figures = {name: measure(name, folder, Path(scratch)) for name, folder in folders.items()}
    write_result("base_policies", figures)


if __name__ == "__main__":
    main()
