"""A small finished run, written with the records' own writers: a byte-level tokenizer, rollouts, documents."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world_kind import prepare_world_folder
from tasks.core.records.documents import write_document
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import ROLLOUTS, SCORED_ROLLOUTS, TRAINING_BATCH
from tasks.core.records.scores import BehaviourChange, DifficultyScores
from tasks.core.records.tables import write_rows
from tasks.core.records.training import EngineMismatch
from tasks.report import report
from tests.finished_run import (
    Row,
    advantage_summary,
    behaviour,
    evaluation,
    metrics,
    played_row,
    scores,
    selection,
    write_weights,
)

SPECIAL = ("<|im_start|>", "<|im_end|>")
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
PAYS = "I pay my friend back.\n```python\nprint(apis.bank.pay("


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Make a tokenizer with one token per byte, and the two tokens of a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def task_id(task: int) -> str:
    """Return the id of a task of the world's train split."""
    return f"train_{1 + task // 3:03d}_{1 + task % 3}"


def rollout(tokenizer: Tokenizer, task: int, number: int, value: float, turns: list[tuple[str, str]]) -> Row:
    """Return a rollout of (agent text, observation) turns; the last observation is not part of it."""
    ids = tokenizer.encode(f"<|im_start|>user\nPay back what task {task} says.<|im_end|>\n<|im_start|>assistant\n").ids
    mask, turn = [False] * len(ids), [-1] * len(ids)
    for turn_number, (said, seen) in enumerate(turns):
        agent = tokenizer.encode(f"{said}<|im_end|>").ids
        world = tokenizer.encode(f"\n<|im_start|>user\n{seen}<|im_end|>\n<|im_start|>assistant\n").ids
        world = world if turn_number < len(turns) - 1 else []
        ids += agent + world
        mask += [True] * len(agent) + [False] * len(world)
        turn += [turn_number] * len(agent) + [-1] * len(world)
    played = {"code_blocks": 1, "api_calls": ["bank.pay"], "failed_api_calls": []}
    return played_row(
        task_id(task),
        f"s{task // 3}",
        "train",
        value,
        number,
        difficulty=1 + task % 2,
        token_ids=ids,
        policy_mask=mask,
        turn_index=turn,
        engine_logprobs=[-0.5 if flag else 0.0 for flag in mask],
        turns=[{**played, "failed": "Traceback" in seen} for _, seen in turns],
        staleness=0,
    )


def rollouts(tokenizer: Tokenizer, tasks: int, per_task: int, seed: int) -> list[Row]:
    """Return rollouts whose success becomes likelier with `seed`, the iteration. The first one's text is hostile."""
    draw = random.Random(seed)
    rows = []
    for task in range(tasks):
        for number in range(per_task):
            value = 1.0 if draw.random() < 0.2 + 0.06 * seed else draw.choice([0.0, 0.5])
            seen = "Traceback (most recent call last):\nKeyError: 'amount'" if value == 0.5 else "{'paid': 12.5}"
            said = HOSTILE if task == number == 0 else f"{PAYS}{draw.randrange(9)}))\n```"
            turns = [(said, seen), ("```python\napis.supervisor.complete_task()\n```", "")]
            rows.append(rollout(tokenizer, task, number, value, turns[: 1 + (number > 0)]))
    rows[-1].update({"return": 0.0}, success=False, end_reason="turn_limit", tests_passed=[])
    return rows


def write_iteration(layout: Layout, key: str, rows: list[Row], iterations: int) -> None:
    step, mean = int(key[1:]), sum(row["return"] for row in rows) / len(rows)
    kept = [row for row in rows if row["return"] != 0.5]
    write_rows(layout.rollouts(key), rows, ROLLOUTS)
    labelled = [{**row, "advantage": row["return"] - 0.5} for row in kept]
    batch = [{name: row[name] for name in TRAINING_BATCH.names if name in row} for row in labelled]
    write_rows(layout.training_batch(key), batch, TRAINING_BATCH)
    write_document(layout.advantage_summary(key), advantage_summary(len(rows), len(kept), mean))
    figures = metrics(
        mean_return=mean,
        group_return_std=0.36 - 0.3 * step / iterations,
        kept_rollouts=len(kept),
        lost_rollouts=4 if step == 3 else 0,
        shrunk_groups=2 if step == 3 else 0,
        entropy=0.8 / step**0.3,
        kl=None if step == 2 else 0.002 * step,
        grad_norm=50.0 if step == iterations - 1 else 0.4 + 0.02 * (step % 3),
        engine_mismatch=EngineMismatch(mean=1e-6 * step, max=2e-5, noise=1e-2, share_over_noise=0.0),
        note="every advantage is zero <b>" if step == 2 else None,
    )
    write_document(layout.metrics(key), figures)


def write_evaluation(layout: Layout, key: str, rows: list[Row]) -> None:
    scored = [{**row, "split": "dev", "policy": key, "evaluation_run": 0} for row in rows]
    write_rows(layout.evaluation_rollouts(key), scored, SCORED_ROLLOUTS)
    tgc = 100 * sum(row["success"] for row in rows) / len(rows)
    write_document(layout.evaluation(key), evaluation(key, tgc, tgc / 2))


def write_scores(layout: Layout, split: str, rows: list[Row]) -> None:
    runs = [(who, run) for who in ("base", "selected") for run in (0, 1)]
    players = [{**row, "split": split, "policy": who, "evaluation_run": run} for row in rows for who, run in runs]
    write_rows(layout.score_rollouts(split), players, SCORED_ROLLOUTS)
    one = DifficultyScores(tasks=3, tgc=80.0, tgc_se=2.0, base_tgc=40.0, base_tgc_se=None)
    acted = [behaviour(assumptions=0.5, diversity=0.9, execution_errors=errors) for errors in (0.25, 0.125)]
    gains = {"tgc_gain": 40.04, "tgc_gain_se": 3.1, "sgc_gain": -10.0, "sgc_gain_se": None}
    base = {"base_sgc": 60.0, "base_tgc_se": 2.5, "base_sgc_se": None}
    change = BehaviourChange(base=acted[0], selected=acted[1])
    found = scores(split, tgc=70.04, per_difficulty={"1": one, "2": one}, behaviour=change, **base, **gains)
    write_document(layout.score(split), found)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder that prepare_world writes."""
    folder = tmp_path_factory.mktemp("prepared") / "world"
    prepare_world_folder(WorldSection.of("pocketworld"), folder)
    return folder


def write_run(
    layout: Layout, tokenizer: Tokenizer, iterations: int = 8, tasks: int = 6, k: int = 4
) -> StageContext[Params]:
    """All that the report reads of a run."""
    params = Params(iterations=iterations)
    layout.base_policy.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(layout.base_policy / "tokenizer.json"))
    for key in params.dag.previous:
        write_iteration(layout, key, rollouts(tokenizer, tasks, k, int(key[1:])), iterations)
    for key in params.dag.evaluated:
        write_evaluation(layout, key, rollouts(tokenizer, 6, 1, int(key[1:])))
    for split in TEST_SPLITS:
        write_scores(layout, split, rollouts(tokenizer, 6, 1, 8))
    write_weights(layout.policy("i002"), "i002")
    write_document(layout.selection, selection(params.dag.evaluated, 50.0, 25.0))
    return StageContext(layout, params)


@pytest.fixture(scope="session")
def reported_run(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer, world: Path) -> StageContext[Params]:
    """Make a finished run and its report, for reading only."""
    layout = Layout(tmp_path_factory.mktemp("reported"))
    shutil.copytree(world, layout.world)
    run = write_run(layout, tokenizer)
    report(run)
    return run


@pytest.fixture
def finished_run(reported_run: StageContext[Params], tmp_path: Path) -> StageContext[Params]:
    """Copy a finished run, without its report, for tests that change it."""
    shutil.copytree(reported_run.layout.data, tmp_path / "data", ignore=shutil.ignore_patterns("report"))
    return replace(reported_run, layout=Layout(tmp_path))
