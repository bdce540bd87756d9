"""OpenEnv servers for tests, each in its own process, and a served pocketworld as a world of params.yaml."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.world import WorldConfig, WorldSection
from tasks.core.interfaces.world import World
from tasks.core.worlds.openenv.kind import OpenEnvConfig, OpenEnvScenario, OpenEnvSplits, OpenEnvTask, OpenEnvVerdict

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = 4
"""Number of scenarios in each split."""


@contextmanager
def running(*arguments: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Start a server; yield the address that it prints at the end of a line, and its process. End it with the block."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            addresses = (line.split()[-1] for line in process.stdout if "http://" in line)
            url = next(addresses, None)
            assert url, f"{command} ended"
            yield url, process
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def served_world(name: str, *arguments: str) -> Iterator[str]:
    """Serve a world by `loopline serve NAME`; yield its address."""
    with running("-m", "flows.cli", "serve", name, "--port", "0", *arguments) as (url, _):
        yield url


def served_config(url: str, world: World, **changes: Any) -> WorldConfig:
    """Return the config of the world `world`, served at `url`, with its own solutions."""
    splits = OpenEnvSplits(**{split: _scenarios(world, split) for split in SPLITS})
    rules: Mapping[str, Any] = {
        "prompt": "messages",
        "observation": ("text",),
        "action": {"text": "$text"},
        "verdict": OpenEnvVerdict(success="success", score="score"),
        "max_turns": 12,
        **changes,
    }
    return WorldSection.of("openenv", openenv=OpenEnvConfig(url=url, splits=splits, **rules))


def _scenarios(world: World, split: Split) -> tuple[OpenEnvScenario, ...]:
    tasks = world.tasks(split)[: 3 * SCENARIOS]
    return tuple(
        OpenEnvScenario(
            instruction=tasks[first].instruction,
            tasks=tuple(
                OpenEnvTask(
                    reset={"task_id": task.task_id, "seed": "$seed"},
                    solution=tuple(world.demonstration(task.task_id)),  # type: ignore[attr-defined]
                )
                for task in tasks[first : first + 3]
            ),
        )
        for first in range(0, len(tasks), 3)
    )
