"""`loopline plan` against real runs on this CPU: time, and the learner's memory.

    PYTHONPATH=. python tests/benchmarks/plan.py

Two runs of `dvc repro` in folders of their own. From the first, a short one, the machine's rates are taken
(calibration.py); with these the second is planned, which has three times the rollouts in each
iteration. Episodes and the share of rollouts that train are those that it had: what a policy will do is another
question. `time` is planned over measured wall clock; on a machine that does other work too it says how evenly that was
spread.

Memory: bytes that torch allocates at most in an update of the embedded policy, beside the plan's.
"""

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from result_file import write_result
from transformers import Qwen2Config

from tasks.core.capacity.flops import ModelShape
from tasks.core.capacity.hardware import HARDWARE
from tasks.core.capacity.known_models import model_config
from tasks.core.capacity.memory import learner_memory
from tasks.core.capacity.plan import Plan, make_plan
from tasks.core.config.params import Params, load_params
from tasks.core.config.world_settings import MeanEpisode
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import ROLLOUTS, TRAINING_BATCH
from tasks.core.records.tables import read_table
from tasks.core.records.training import Timings, UpdateTimings
from tasks.core.worlds.pocketworld.kind import PocketworldConfig
from tests.benchmarks.calibration import MeasuredRun, calibrated
from tests.core.capacity.test_memory import CHUNK, POLICY_TOKENS, POSITIONS, most_allocated
from tests.flows.tiny_project import configure, environment, make_project

SHORT = ("iterations=2", "collection.tasks_per_iteration=12", "collection.rollouts_per_task=4", "scoring.scenarios=5")
LONG = ("iterations=4", "evaluation.every=2", "scoring.rollouts_per_task=1", "scoring.scenarios=20")


@dataclass(frozen=True)
class Run:
    """A finished run: what it took, and what was in it."""

    params: Params
    config: dict[str, Any]
    seen: MeasuredRun
    episodes: MeanEpisode
    kept_share: float
    wall_s: float
    stages: dict[str, float]
    """Seconds of all stages of one name."""

    def plan(self, hardware: Any, turn_s: float) -> Plan:
        episodes = MeanEpisode(**{**vars(self.episodes), "turn_s": turn_s})
        return make_plan(self.params, self.config, hardware, 1, episodes, self.kept_share)


def begun(folder: Path) -> Iterator[tuple[str, float]]:
    """(stage, second) when DVC begins it; its own start is "dvc", its end "end"."""
    command = [sys.executable, "-m", "dvc", "repro"]
    variables = environment(folder, PYTHONUNBUFFERED="1")
    yield "dvc", time.monotonic()
    with subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Running stage '"):
                yield line.split("'")[1], time.monotonic()
    if process.returncode:
        raise SystemExit(f"dvc repro ended with {process.returncode}")
    yield "end", time.monotonic()


def played(folder: Path, *settings: str) -> Run:
    """Configure the default with `settings`, run it, and read what it took."""
    make_project(folder)
    configure(folder, "default", *settings)
    times = list(begun(folder))
    stages: dict[str, list[float]] = defaultdict(list)
    for (name, start), (_, end) in pairwise(times):
        stages[name.partition("@")[0]].append(end - start)
    params, layout = load_params(folder / "params.yaml"), Layout(folder)
    collecting = [read_document(layout.timings(key), Timings).wall_s for key in params.dag.previous]
    updating = [read_document(layout.update_timings(key), UpdateTimings).update_s or 0.0 for key in params.dag.previous]
    episodes, kept_share = content(layout, params)
    wall, stage_s = times[-1][1] - times[0][1], median(stages["filter_advantages"])
    plan = make_plan(params, model_config(params.policy.source, folder), HARDWARE["cpu"], 1, episodes, kept_share)
    slower = fmean(collecting) / plan.collecting.total
    worked = (
        sum(collecting) + sum(updating) + slower * (plan.evaluating.total * plan.load.evaluations + plan.scoring.total)
    )
    count = sum(map(len, stages.values())) - 1
    seen = MeasuredRun(fmean(collecting), fmean(updating), stage_s, max(0.0, wall - worked - stage_s * count))
    spent = {name: round(sum(seconds), 2) for name, seconds in stages.items()}
    return Run(params, model_config(params.policy.source, folder), seen, episodes, kept_share, wall, spent)


def content(layout: Layout, params: Params) -> tuple[MeanEpisode, float]:
    """The mean episode, and the share of the tokens that trained."""
    tables = [read_table(layout.rollouts(key), ROLLOUTS).to_pylist() for key in params.dag.previous]
    rows = [row for table in tables for row in table]
    batches = [
        read_table(layout.training_batch(key), TRAINING_BATCH)["token_ids"].to_pylist() for key in params.dag.previous
    ]
    tokens, turns = fmean(len(row["token_ids"]) for row in rows), fmean(len(row["turns"]) for row in rows)
    sampled, prompt = (
        fmean(sum(row["policy_mask"]) for row in rows),
        fmean(row["policy_mask"].index(True) for row in rows),
    )
    trained = sum(len(ids) for batch in batches for ids in batch) / (tokens * len(rows))
    turn_s = PocketworldConfig.mean_episode.turn_s
    observed = (tokens - sampled - prompt) / turns
    return MeanEpisode(prompt, turns, sampled / turns, observed, turn_s, "measured"), trained


def memory() -> float:
    """Planned over measured bytes of an update of the embedded policy's shape."""
    params = load_params(Path("params.yaml"))
    config = model_config(params.policy.source, Path.cwd())
    settings = params.update.model_copy(update={"epochs": 1, "minibatch": 1, "logprob_chunk": CHUNK})
    settings = settings.model_copy(update={"tokens_per_pack": POSITIONS})
    planned = learner_memory(ModelShape.of_config(config), params.policy, settings, POSITIONS, POLICY_TOKENS, ranks=1)
    measured = most_allocated(Qwen2Config(**config), params.policy, settings)
    return (planned.total - planned.weights - planned.adapter) / measured


def main() -> None:
    update_memory = round(memory(), 3)
    with tempfile.TemporaryDirectory() as temporary:
        short = played(Path(temporary) / "short", *SHORT)
        long = played(Path(temporary) / "long", *LONG)
    first = short.plan(HARDWARE["cpu"], PocketworldConfig.mean_episode.turn_s)
    slower = short.seen.collecting_s / first.collecting.total
    hardware = calibrated(HARDWARE["cpu"], first, short.seen)
    plan = long.plan(hardware, slower * PocketworldConfig.mean_episode.turn_s)
    planned = {"collecting_s": plan.collecting.total, "updating_s": plan.updating_s, "wall_s": plan.seconds}
    measured = {"collecting_s": long.seen.collecting_s, "updating_s": long.seen.updating_s, "wall_s": long.wall_s}
    figures = {
        "time": {name: round(planned[name] / measured[name], 2) for name in planned},
        "memory": update_memory,
        "planned": {name: round(value, 2) for name, value in planned.items()},
        "measured": {name: round(value, 2) for name, value in measured.items()},
        "machine_rates": {name: round(value, 4) for name, value in vars(hardware).items() if name != "name"},
        "pilot": {name: round(value, 3) for name, value in vars(short.seen).items()},
        "stages_s": {"pilot": short.stages, "run": long.stages},
    }
    write_result("plan", figures)


if __name__ == "__main__":
    main()
