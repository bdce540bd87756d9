"""Recorded episodes as the package's experiment outputs, and the package's own verdict on them.

The outputs folder is an AppWorld root of its own (its data are links), so that the package's tools work on it as they
are: `appworld evaluate NAME SPLIT --root FOLDER`, `pack`, and, with both test splits in it, the leaderboard's `make`.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tqdm import tqdm

from tasks.core.code_blocks import turn_code
from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import WorldFault
from tasks.core.interfaces.world_kind import PackageVerdicts, ScoredEpisode, ScoredRun, ScoredTrials
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.records.files import ArtifactError, read_json, replacing
from tasks.core.worlds.appworld import layout
from tasks.core.worlds.appworld.kind import APPWORLD, AppWorldConfig
from tasks.core.worlds.appworld.layout import engine_variables
from tasks.core.worlds.appworld.official_server import OfficialServer, make_agent_root
from tasks.core.worlds.appworld.prepared_root import read_prepared_root
from tasks.core.worlds.appworld.world import GAVE_UP

_SECONDS_PER_CALL = 120.0


class EvaluationFailed(RuntimeError):  # noqa: N818
    """The package's evaluation stopped; the message holds its last lines."""


@dataclass(frozen=True)
class PackageScores:
    """Verdicts of `appworld evaluate`."""

    tgc: float
    """Percent of tasks."""
    sgc: float
    """Percent of scenarios."""
    successes: Mapping[str, bool]
    """By task."""


def export(run: ScoredRun[AppWorldConfig]) -> PackageVerdicts:
    """Write the episodes as experiment outputs and let the package judge them. Raises EvaluationFailed."""
    python, root = python_executable(INTERPRETERS, APPWORLD), read_prepared_root(run.settings, run.world).root
    turns = {episode.task_id: episode.turns for episode in run.episodes}
    export_outputs(python, root, run.split, turns, run.folder, run.code_blocks)
    scores = package_scores(python, run.folder, run.split)
    return PackageVerdicts(
        judge="appworld evaluate",
        solved=scores.successes,
        ours={episode.task_id: by_package_rule(episode) for episode in run.episodes},
        rule="an untouched task that was given up can count as solved",
        figures=(scores.tgc, scores.sgc),
    )


def write_trials(trials: ScoredTrials[AppWorldConfig]) -> None:
    """Write the experiment outputs of each run of the tasks, evaluated, without the data that they were made with.

    As `loopline_run0_test_normal` and so on: copied into an AppWorld root, the package's `pack` and `make` run on them.
    Raises EvaluationFailed.
    """
    python, root = python_executable(INTERPRETERS, APPWORLD), read_prepared_root(trials.settings, trials.world).root
    split = cast(Split, trials.split)
    for trial in range(trials.trials):
        turns = {episode.task_id: episode.turns for episode in trials.episodes if episode.trial == trial}
        name = experiment_name(split, f"run{trial}")
        with tempfile.TemporaryDirectory(prefix="appworld-outputs-") as temporary:
            whole = Path(temporary) / "root"
            export_outputs(python, root, split, turns, whole, trials.code_blocks, name)
            package_scores(python, whole, split, name)
            shutil.copytree(_outputs(whole, name), _outputs(trials.folder, name))


def by_package_rule(episode: ScoredEpisode) -> bool:
    """Return whether the recorded tests are a success as the package counts it, however the episode ended."""
    return bool(episode.passed) and not {*episode.failed} - {GAVE_UP}


def experiment_name(split: str, run: str = "") -> str:
    """The leaderboard's tools want lower case and the split's name at the end."""
    return "_".join(part for part in ("loopline", run, split) if part)


def export_outputs(
    python: Path,
    root: Path,
    split: Split,
    turns: Mapping[str, Sequence[str]],
    folder: Path,
    code_blocks: CodeBlocks = "first",
    name: str | None = None,
) -> None:
    """Replay each task's assistant turns on the official server and keep what it writes, under `folder`.

    `turns`: task id -> the turns of its episode; `code_blocks`: what of a turn was run, as that knob had it; `name`: of
    the experiment.
    A turn whose code ends or blocks the server ends its task's replay, as it ended the episode. The server is less safe
    than the pool; what agents' code gains by that shows as a difference between the package's verdicts and the recorded
    ones. Raises ArtifactError when `folder` exists, unless it is an export of another split of the same root.
    """
    name = name or experiment_name(split)
    outputs = _outputs(folder, name)
    _require_room(root, folder, outputs)
    _link_data(root, split, turns, folder / "data")
    with tempfile.TemporaryDirectory(prefix="appworld-export-") as temporary, replacing(outputs) as made:
        agent_root = make_agent_root(root, Path(temporary) / "root")
        with _Replay(python, agent_root, name, code_blocks) as replay:
            for task_id, said in tqdm(turns.items(), desc=f"replaying {split}", unit="task", leave=False, disable=None):
                shutil.copytree(replay.play(task_id, said), made / "tasks" / task_id)


def _require_room(root: Path, folder: Path, outputs: Path) -> None:
    """Raises ArtifactError."""
    if outputs.exists():
        raise ArtifactError(f"{outputs}: exists already; name a new folder")
    linked = folder / "data" / "tasks"
    if folder.exists() and not (linked.is_symlink() and linked.resolve() == (root / "data" / "tasks").resolve()):
        raise ArtifactError(f"{folder}: exists already, and is no export of this run's tasks; name a new folder")


def package_scores(python: Path, folder: Path, split: Split, name: str | None = None) -> PackageScores:
    """Run the package's `appworld evaluate` on an exported folder. Raises EvaluationFailed."""
    name = name or experiment_name(split)
    command = [str(python), "-m", "appworld.cli", "evaluate", name, split, "--root", str(folder.resolve())]
    done = subprocess.run(
        command, env=engine_variables(python, folder), cwd=folder, capture_output=True, text=True, check=False
    )
    report = _outputs(folder, name) / "evaluations" / f"{split}.json"
    if done.returncode != 0 or not report.is_file():
        said = (done.stdout + done.stderr)[-2000:]
        raise EvaluationFailed(f"appworld evaluate failed (exit {done.returncode}):\n{said}")
    document: dict[str, Any] = read_json(report)
    aggregate = document["aggregate"]
    successes = {task_id: bool(one["success"]) for task_id, one in document["individual"].items()}
    return PackageScores(aggregate["task_goal_completion"], aggregate["scenario_goal_completion"], successes)


class _Replay:
    """The official server, started anew when a task's code has ended or blocked it."""

    def __init__(self, python: Path, root: Path, name: str, code_blocks: CodeBlocks) -> None:
        self._python, self._root, self._name, self._code_blocks = python, root, name, code_blocks
        self._server: OfficialServer | None = None

    def __enter__(self) -> "_Replay":
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.kill()

    def play(self, task_id: str, turns: Sequence[str]) -> Path:
        """Replay one task; returns the folder that the server wrote."""
        server = self._server or OfficialServer(self._python, self._root)
        self._server = server
        server.call("initialize", task_id=task_id, experiment_name=self._name, load_ground_truth=False)
        try:
            for code in (turn_code(said, self._code_blocks) for said in turns):
                if code.blocks:
                    text = code.text.encode("utf-8", "replace").decode("utf-8")
                    server.call("execute", _SECONDS_PER_CALL, task_id=task_id, code=text)
            server.call("close", task_id=task_id)
        except WorldFault:
            server.kill()
            self._server = None
        return _outputs(self._root, self._name) / "tasks" / task_id


def _outputs(root: Path, name: str) -> Path:
    return root / "experiments" / "outputs" / name


def _link_data(root: Path, split: Split, task_ids: Mapping[str, object], folder: Path) -> None:
    """The root's data as links, but for a data set that lists the exported tasks alone, in the root's order."""
    folder.mkdir(parents=True, exist_ok=True)
    source = root.resolve() / "data"
    for entry in source.iterdir():
        if entry.name != "datasets" and not (folder / entry.name).is_symlink():
            (folder / entry.name).symlink_to(entry)
    listed = [line.partition(":")[0].strip() for line in layout.dataset(root, split).read_text().splitlines()]
    path = layout.dataset(folder.parent, split)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{task_id}\n" for task_id in listed if task_id in task_ids), encoding="utf-8")
