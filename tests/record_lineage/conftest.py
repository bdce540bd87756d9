"""A finished pipeline as the lineage packages see it: params, stage versions, documents, policies and a dvc.lock."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.core.config.lineage import LineageConfig
from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.lineage.mlflow_store import open_store
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.records.documents import Document, read_document, write_document
from tasks.core.records.files import write_json
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import RunManifest
from tasks.core.records.schemas import ROLLOUTS, SCORED_ROLLOUTS
from tasks.core.records.scores import Evaluation, Scores, Selection
from tasks.core.records.tables import write_rows
from tasks.record_lineage.recording import Pipeline
from tests.finished_run import (
    Row,
    advantage_summary,
    evaluation,
    metrics,
    played_row,
    scores,
    selection,
    timings,
    write_weights,
)

ROOT = Path(__file__).resolve().parents[2]
POCKET = ROOT / "data" / "base_policies" / "pocket"
ITERATIONS = 3


def write_iteration(layout: Layout, key: str) -> None:
    step = int(key[1:])
    write_document(layout.advantage_summary(key), advantage_summary(rollouts=12, kept=10, mean_return=0.2 * step))
    figures = metrics(
        mean_return=0.2 * step, kept_rollouts=10 * step, entropy=1.0 / step, kl=None if step == 2 else 0.01
    )
    write_document(layout.metrics(key), figures)
    write_training(layout, key, step)


def write_training(layout: Layout, key: str, seed: int) -> None:
    """Write rollouts of one iteration: two of each of two tasks, with two turns, the second of which failed."""
    turn = {"code_blocks": 1, "api_calls": ["bank.pay"], "failed_api_calls": []}
    rows = [
        played_row(
            task,
            "train_s",
            "train",
            float(number),
            number,
            seed=seed,
            difficulty=1,
            token_ids=[5, 6, 7, 8, 9, 10],
            policy_mask=[False, True, True, False, False, True],
            turn_index=[-1, 0, 0, -1, -1, 1],
            engine_logprobs=[0.0, -0.5, -1.5, 0.0, 0.0, -0.25],
            turns=[{**turn, "failed": False}, {**turn, "api_calls": [], "failed": True}],
            staleness=0,
        )
        for task in ("train_1", "train_2")
        for number in (0, 1)
    ]
    write_rows(layout.rollouts(key), rows, ROLLOUTS)
    clocks = {f"{row['task_id']}#{row['rollout_index']}": [1000.0, 1001.5, 1002.0] for row in rows}
    write_document(layout.timings(key), timings(clocks=clocks))


def played(split: str, policy: str, solved: set[str], runs: int = 1) -> list[Row]:
    """Return rows of SCORED_ROLLOUTS: six tasks in two scenarios, of which those in `solved` ("a1") succeeded."""
    tokens = {"token_ids": [1, 2, 3], "policy_mask": [False, False, True], "turn_index": [-1, -1, 0]}
    return [
        played_row(
            f"{split}_{task}",
            f"{split}_{task[0]}",
            split,
            float(task in solved),
            run,
            difficulty=1 + (task[0] == "b"),
            engine_logprobs=[0.0, 0.0, -0.5],
            policy=policy,
            evaluation_run=run,
            **tokens,
        )
        for run in range(runs)
        for task in ("a1", "a2", "a3", "b1", "b2", "b3")
    ]


def write_played(layout: Layout, params: Params, solved: set[str]) -> None:
    """Evaluations and scores in which the base solved nothing and every other policy `solved`."""
    for key in params.dag.evaluated:
        rows = played("dev", key, set() if key == "i000" else solved)
        write_rows(layout.evaluation_rollouts(key), rows, SCORED_ROLLOUTS)
    for split in TEST_SPLITS:
        rows = [*played(split, "base", set(), 2), *played(split, "selected", solved, 2)]
        write_rows(layout.score_rollouts(split), rows, SCORED_ROLLOUTS)
        write_rows(layout.training_budget_rollouts(split), [], SCORED_ROLLOUTS)


def write_policy(folder: Path, key: str) -> None:
    write_weights(folder, key)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "optimizer.safetensors").write_bytes(b"moments")


def name_weights(layout: Layout) -> None:
    """Have evaluation, selection and scores name the weights of the selected policy that lie there now."""
    key = read_document(layout.selection, Selection).iteration
    of_weights = {"adapter_digest": policy_digest(layout.policy(key)), "iteration": key}
    documents: list[tuple[Path, type[Document]]] = [(layout.evaluation(key), Evaluation), (layout.selection, Selection)]
    for path, kind in [*documents, *((layout.score(split), Scores) for split in TEST_SPLITS)]:
        write_document(path, read_document(path, kind).model_copy(update=of_weights))


def write_base(folder: Path) -> None:
    """Write the files of a base policy that are read without loading it."""
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy2(POCKET / name, folder)


def md5(path: Path) -> str:
    if path.is_dir():
        listing = [f"{file.name} {md5(file)}" for file in sorted(path.iterdir())]
        return hashlib.md5("\n".join(listing).encode()).hexdigest() + ".dir"
    return hashlib.md5(path.read_bytes()).hexdigest()


def stage(layout: Layout, name: str, deps: list[Path], outs: list[Path]) -> dict[str, Any]:
    def entries(paths: list[Path]) -> list[dict[str, str]]:
        return [{"path": path.relative_to(layout.root).as_posix(), "md5": md5(path)} for path in paths]

    task = name.partition("@")[0]
    version = json.loads(layout.stage_versions.read_text())[task]
    versions = {f"{task}.{part}": version[part] for part in ("code", "params")}
    params = {"data/stage_versions.json": versions, "params.yaml": {"seed": 0}}
    return {"cmd": name, "deps": entries(deps), "outs": entries(outs), "params": params}


def write_lock(layout: Layout, params: Params) -> None:
    """Write the dvc.lock that DVC would have written for the present artifacts."""
    stages = {
        "prepare_world": stage(layout, "prepare_world", [], [layout.world]),
        "prepare_policy": stage(layout, "prepare_policy", [], [layout.base_policy, layout.policy("i000")]),
    }
    for key, before in params.dag.previous.items():
        name = f"collect_rollouts@{key}"
        stages[name] = stage(layout, name, [layout.world, layout.policy(before.behaviour)], [layout.rollouts(key)])
        name = f"update_policy@{key}"
        stages[name] = stage(layout, name, [layout.rollouts(key)], [layout.policy(key), layout.metrics(key)])
    for key in params.dag.evaluated:
        name = f"evaluate_policy@{key}"
        stages[name] = stage(
            layout, name, [layout.policy(key)], [layout.evaluation(key), layout.evaluation_rollouts(key)]
        )
    stages["select_checkpoint"] = stage(layout, "select_checkpoint", [], [layout.selection])
    for split in TEST_SPLITS:
        name = f"score@{split}"
        tables = [layout.score_rollouts(split), layout.training_budget_rollouts(split)]
        stages[name] = stage(layout, name, [layout.selection], [layout.score(split), *tables])
    lock = {"schema": "2.0", "stages": stages}
    (layout.root / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))


@pytest.fixture(scope="session")
def params() -> Params:
    content = {"iterations": ITERATIONS}
    return Params.model_validate(content)


@pytest.fixture(scope="session", autouse=True)
def own_stores() -> Iterator[None]:
    """Make each run record in its own folder's store, whatever the tests' environment names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an MLflow database with its tables, which takes seconds."""
    folder = tmp_path_factory.mktemp("store")
    open_store(LineageConfig(experiment="other"), folder)
    return folder / "mlflow.db"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, params: Params, empty_store: Path) -> Path:
    """Make a finished run in its own git repository, with the store `mlflow.db`; for copying, not for changes."""
    root = tmp_path_factory.mktemp("finished")
    shutil.copy2(empty_store, root)
    (root / "params.yaml").write_text(yaml.safe_dump(params.model_dump(mode="json")))
    write_artifacts(Layout(root), params)
    Layout(root).report.mkdir()
    (Layout(root).report / "index.html").write_text("the report")
    write_lock(Layout(root), params)
    git(root, "init", "-q")
    git(root, "add", "params.yaml", "dvc.lock")
    git(root, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "run")
    return root


def write_artifacts(layout: Layout, params: Params) -> None:
    tasks = (
        "prepare_world",
        "prepare_policy",
        "collect_rollouts",
        "update_policy",
        "evaluate_policy",
        "select_checkpoint",
        "score",
    )
    digests = {task: hashlib.sha256(task.encode()).hexdigest() for task in tasks}
    versions = {task: {"code": digest[:16], "params": digest[16:32]} for task, digest in digests.items()}
    write_json(layout.stage_versions, versions)
    manifest = RunManifest(params=params.model_dump(mode="json"), params_file="0" * 64, files={}, stages={})
    write_document(layout.manifest, manifest)
    layout.world.mkdir(parents=True)
    (layout.world / "world.json").write_text("{}")
    write_base(layout.base_policy)
    write_policy(layout.policy("i000"), "i000")
    for key in params.dag.previous:
        write_policy(layout.policy(key), key)
        write_iteration(layout, key)
    for key in params.dag.evaluated:
        write_document(layout.evaluation(key), evaluation(key, tgc=20.0 + 10 * int(key[1:])))
    write_document(layout.selection, selection(params.dag.evaluated, 10.0, 5.0))
    for split in TEST_SPLITS:
        write_document(layout.score(split), scores(split))
    write_played(layout, params, {"a1", "a2", "a3"})


def copied(finished: Path, root: Path) -> Layout:
    """Copy `finished` to a run that the test may change."""
    shutil.copytree(finished, root, dirs_exist_ok=True)
    return Layout(root)


@pytest.fixture
def layout(tmp_path: Path, finished: Path) -> Layout:
    """Return a finished run to work with."""
    return copied(finished, tmp_path)


@pytest.fixture
def pipeline(layout: Layout, params: Params) -> Pipeline:
    return Pipeline(layout, params)


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def another_run(layout: Layout, params: Params) -> Callable[..., Pipeline]:
    """Return a function that does the run `layout` again, as `run_again` does it."""
    return partial(run_again, layout, params)


def run_again(layout: Layout, params: Params, weights: str, solved: set[str], **changes: Any) -> Pipeline:
    """Return the same working tree after a run with other weights of i002, other successes and other parameters."""
    (layout.policy("i002") / "adapter_model.safetensors").write_bytes(weights.encode())
    name_weights(layout)
    write_played(layout, params, solved)
    write_lock(layout, params)
    content = params.model_dump(mode="json", exclude={"dag"})  # derived from what may change
    return Pipeline(layout, Params.model_validate({**content, **changes}))
