"""From dev evaluation over selection to scores, on the real world, sandbox and agent loop.

An engine recites instead of sampling: it plays the oracle's turns on the tasks that a checkpoint should solve, and
completes the others at once. So every figure is known beforehand.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from flows.errors import is_expected, may_pass
from tasks.core.config.collection import AgentLimits, ChangedLimits, CollectionConfig, TaskFilterConfig
from tasks.core.config.evaluation import EvaluationConfig, ScoringConfig
from tasks.core.config.params import Params
from tasks.core.config.splits import SPLITS
from tasks.core.config.stage_inputs import EvaluationInputs, ScoringInputs, SelectionInputs
from tasks.core.evaluation.playing import WorldBroke, play_policy
from tasks.core.evaluation.scored_rows import Row
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.interfaces.world import WorldFault
from tasks.core.interfaces.world_kind import prepare_world_folder
from tasks.core.policies.architecture import TinyQwen2, build_tokenizer, new_model
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.loading import load_tokenizer, save_policy, trainable_policy
from tasks.core.recital import ScriptedEngine
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.scores import CorrectedSelection, Evaluation, PairedScores, Scores, Selection
from tasks.core.records.tables import read_table
from tasks.core.rollouts.shards import PlayedRollouts
from tasks.core.text_games.task_files import read_tasks
from tasks.core.worlds.pocketworld.episode import PocketEpisode
from tasks.core.worlds.pocketworld.problem import TaskSpec, build_problem, oracle, turn
from tasks.core.worlds.pocketworld.world import PocketWorld
from tasks.evaluate_policy import evaluate_policy
from tasks.score import score
from tasks.select_checkpoint import select_checkpoint

SCENARIOS = 3
GIVE_UP = [turn("apis.supervisor.complete_task()", "I assume that this dummy does it.")]
Solves = Callable[[str], bool]
SKILLS: dict[str, Solves] = {
    "i000": lambda task: task.endswith("1"),
    "i001": lambda task: not task.endswith("3"),
    "i002": lambda task: True,
    "i003": lambda task: True,
}
"""Test on task ids (which end in 1 to 3 within a scenario) for the tasks that the policy of an iteration solves."""


class Reciter(ScriptedEngine):
    """An engine that recites the oracle's turns on tasks that the checkpoint should solve, and gives up on others."""

    def __init__(self, layout: Layout, dawdles: str = "") -> None:
        """Make the engine.

        On the task `dawdles` it wastes a turn before the solution, which has three turns on every task.
        """
        specs = read_tasks(layout.world, TaskSpec)
        turns = {s.task_id: oracle(build_problem(s)) for split in SPLITS for s in specs[split]}
        turns |= {task: [turn("print(1)"), *turns[task]] for task in turns if task == dawdles}
        chat = ChatFormat(load_tokenizer(layout.base_policy))
        super().__init__("reciter", chat, lambda task, seed: turns[task] if self._solves(task) else GIVE_UP)
        self._solves: Solves = SKILLS["i000"]

    def load_adapter(self, path: Path | None) -> None:
        super().load_adapter(path)
        assert path is not None
        self._solves = SKILLS[path.parent.name]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Return a working tree with the world, a base policy (an untrained tiny model) and four checkpoints."""
    layout = Layout(tmp_path_factory.mktemp("tree"))
    params = parameters()
    prepare_world_folder(params.world, layout.world)
    tokenizer = build_tokenizer(["apis", "print", "user\n", "assistant\n"], 4096)
    model = new_model(TinyQwen2(width=32, feed_forward=32), len(tokenizer), 0, 1, seed=0)
    model.save_pretrained(layout.base_policy)
    tokenizer.save_pretrained(layout.base_policy)
    policy = trainable_policy(model, params.policy, None, seed=0)
    for key in SKILLS:
        save_policy(policy, layout.policy(key))
        with torch.no_grad():
            next(parameter for parameter in policy.parameters() if parameter.requires_grad).add_(1)
    return layout


@pytest.fixture
def cache() -> Iterator[ProcessCache]:
    cache = ProcessCache()
    yield cache
    cache.close()


@pytest.fixture
def reciting(monkeypatch: pytest.MonkeyPatch, prepared: Layout) -> None:
    monkeypatch.setattr("tasks.core.rollouts.playing.open_engine", lambda *_: Reciter(prepared))


def parameters(denylist: Sequence[str] = (), limits: AgentLimits | None = None) -> Params:
    limits = limits or AgentLimits(max_turns=10)
    return Params(
        iterations=3,
        tasks=TaskFilterConfig(denylist=tuple(denylist)),
        collection=CollectionConfig(limits=limits),
        evaluation=EvaluationConfig(every=1, scenarios=SCENARIOS),
        scoring=ScoringConfig(rollouts_per_task=2, scenarios=SCENARIOS),
    )


def evaluate(layout: Layout, key: str, cache: ProcessCache, params: Params | None = None) -> Evaluation:
    evaluate_policy(StageContext(layout, EvaluationInputs.of(params or parameters()), key, cache))
    return read_document(layout.evaluation(key), Evaluation)


@pytest.mark.usefixtures("reciting")
def test_the_pipeline_from_evaluation_to_scores(prepared: Layout, cache: ProcessCache) -> None:
    evaluations = {key: evaluate(prepared, key, cache) for key in SKILLS}
    assert [round(found.tgc) for found in evaluations.values()] == [33, 67, 100, 100]
    assert [found.sgc for found in evaluations.values()] == [0, 0, 100, 100]
    assert len({found.seeds for found in evaluations.values()}) == 1
    first = evaluations["i000"]
    assert (first.tasks, first.scenarios, first.void_rollouts) == (3 * SCENARIOS, SCENARIOS, 0)
    assert first.adapter_digest == policy_digest(prepared.policy("i000"))

    select_checkpoint(StageContext(prepared, SelectionInputs.of(parameters()), "", cache))
    selection = read_document(prepared.selection, Selection)
    assert (selection.iteration, selection.dev_tgc, len(selection.candidates)) == ("i002", 100, 4)
    assert selection.corrected == CorrectedSelection(dev_tgc=100, dev_tgc_se=0, dev_sgc=100, dev_sgc_se=0)

    score(StageContext(prepared, ScoringInputs.of(parameters()), "test_normal", cache))
    scores = read_document(prepared.score("test_normal"), Scores)
    assert (scores.tgc, scores.sgc, scores.base_sgc, len(scores.seeds)) == (100, 100, 0, 2)
    assert scores.base_tgc == pytest.approx(100 / 3)
    assert (scores.tgc_gain, scores.sgc_gain) == (pytest.approx(200 / 3), 100)
    assert (scores.tgc_gain_se, scores.tasks) == (pytest.approx(0, abs=1e-9), 3 * SCENARIOS)
    assert sum(part.tasks for part in scores.per_difficulty.values()) == scores.tasks
    assert list(scores.per_k) == ["1", "2"]
    twice = scores.per_k["2"]
    assert (twice.pass_hat, twice.best_of) == (100, 100)
    assert twice.base_pass_hat == twice.base_best_of == pytest.approx(100 / 3), "both runs solve the same tasks"
    base, selected = scores.behaviour.base, scores.behaviour.selected
    assert (base.assumptions, base.dummies) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert (selected.assumptions, selected.execution_errors, selected.give_up_rate) == (0, 0, None)
    assert selected.doc_lookups is not None
    assert selected.doc_lookups >= 1
    rows = read_table(prepared.score_rollouts("test_normal"), SCORED_ROLLOUTS).to_pylist()
    assert len(rows) == 2 * 2 * 3 * SCENARIOS
    assert {(row["policy"], row["adapter_digest"]) for row in rows} == {
        ("base", policy_digest(prepared.policy("i000"))),
        ("selected", selection.adapter_digest),
    }


@pytest.fixture
def selected(prepared: Layout, cache: ProcessCache, monkeypatch: pytest.MonkeyPatch) -> Selection:
    """Select i002, which solves all tasks; every policy needs a fourth turn for one of the nine."""
    engine = Reciter(prepared, dawdles="test_normal_019_2")
    monkeypatch.setattr("tasks.core.rollouts.playing.open_engine", lambda *_: engine)
    for key in SKILLS:
        evaluate(prepared, key, cache)
    select_checkpoint(StageContext(prepared, SelectionInputs.of(parameters()), "", cache))
    return read_document(prepared.selection, Selection)


def score_at(layout: Layout, cache: ProcessCache, turns: int, test_turns: int, asked: bool = True) -> Scores:
    params = parameters(limits=AgentLimits(max_turns=turns))
    limits = ChangedLimits(max_turns=test_turns)
    scoring = params.scoring.model_copy(update={"limits": limits, "at_training_budget": asked})
    inputs = ScoringInputs.of(params.model_copy(update={"scoring": scoring}))
    score(StageContext(layout, inputs, "test_normal", cache))
    return read_document(layout.score("test_normal"), Scores)


def budget_rows(layout: Layout) -> list[Row]:
    rows: list[Row] = read_table(layout.training_budget_rollouts("test_normal"), SCORED_ROLLOUTS).to_pylist()
    return rows


@pytest.mark.usefixtures("selected")
def test_a_smaller_training_budget_is_scored_beside_the_test_budget(prepared: Layout, cache: ProcessCache) -> None:
    """By hand: three turns end one task of nine, in one scenario of three, in both runs; the base never solved it.

    The scenarios' sums over 6 rollouts differ from the mean of 8/9 by -4/3, 2/3 and 2/3, so the standard error is
    sqrt(3/2 * 24/9) / 18 = 1/9; those of SGC, over 2 values, by as much from 2/3: sqrt(3/2 * 24/9) / 6 = 1/3.
    """
    plain = score_at(prepared, cache, turns=3, test_turns=10, asked=False)
    rows = prepared.score_rollouts("test_normal").read_bytes()
    assert plain.training_budget is None and budget_rows(prepared) == []

    scores = score_at(prepared, cache, turns=3, test_turns=10)
    assert scores.model_copy(update={"training_budget": None}) == plain
    assert prepared.score_rollouts("test_normal").read_bytes() == rows
    found = scores.training_budget
    assert found is not None and found.played_again
    assert (found.limits.max_turns, found.test_limits.max_turns) == (3, 10)
    assert (scores.tgc, scores.sgc) == (100, 100)
    assert (found.tgc, found.sgc) == (pytest.approx(800 / 9), pytest.approx(200 / 3))
    assert (found.tgc_se, found.sgc_se) == (pytest.approx(100 / 9), pytest.approx(100 / 3))
    assert (found.base_tgc, found.base_sgc, found.base_tgc_se) == (pytest.approx(100 / 3), 0, 0)
    assert (found.tgc_gain, found.tgc_gain_se) == (pytest.approx(500 / 9), pytest.approx(100 / 9))
    assert (found.sgc_gain, found.sgc_gain_se) == (pytest.approx(200 / 3), pytest.approx(100 / 3))
    assert found.mean_return == pytest.approx(8 / 9)

    main = read_table(prepared.score_rollouts("test_normal"), SCORED_ROLLOUTS).to_pylist()
    keys = [[(r["policy"], r["task_id"], r["seed"]) for r in played] for played in (main, budget_rows(prepared))]
    assert keys[0] == keys[1] and len(keys[0]) == 2 * 2 * 3 * SCENARIOS
    ended = {(r["policy"], r["task_id"]) for r in budget_rows(prepared) if r["end_reason"] == "turn_limit"}
    assert ended == {("selected", "test_normal_019_2")}


@pytest.mark.usefixtures("selected")
def test_budgets_that_are_the_same_are_played_once(
    prepared: Layout, cache: ProcessCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []

    def counted(*arguments: Any, name: str, **more: Any) -> PlayedRollouts:
        played.append(name)
        return play_policy(*arguments, name=name, **more)

    monkeypatch.setattr("tasks.score.play_policy", counted)
    scores = score_at(prepared, cache, turns=3, test_turns=3)
    found = scores.training_budget
    assert played == ["i000", "i002"] and budget_rows(prepared) == []
    assert found is not None and not found.played_again and found.limits == found.test_limits
    assert scores.tgc == pytest.approx(800 / 9)
    assert {name: getattr(found, name) for name in PairedScores.model_fields} == {
        name: getattr(scores, name) for name in PairedScores.model_fields
    }
    played.clear()
    score_at(prepared, cache, turns=3, test_turns=4)
    assert played == ["i000", "i002", "i000, at the training budget", "i002, at the training budget"]


@pytest.mark.usefixtures("reciting")
def test_denylisted_dev_tasks_are_left_out(prepared: Layout, cache: ProcessCache) -> None:
    specs = read_tasks(prepared.world, TaskSpec)["dev"]
    denied = [spec.task_id for spec in specs[:1]]
    found = evaluate(prepared, "i002", cache, parameters(denylist=denied))
    assert (found.tasks, found.scenarios) == (3 * SCENARIOS - 1, SCENARIOS)


@pytest.mark.usefixtures("reciting")
def test_candidates_that_played_other_tasks_are_not_compared(prepared: Layout, cache: ProcessCache) -> None:
    for key in SKILLS:
        evaluate(prepared, key, cache)
    fewer = parameters(denylist=[read_tasks(prepared.world, TaskSpec)["dev"][0].task_id])
    evaluate(prepared, "i002", cache, fewer)
    with pytest.raises(ArtifactError, match=r"evaluations: the candidates have not played the same dev tasks"):
        select_checkpoint(StageContext(prepared, SelectionInputs.of(parameters()), "", cache))


@pytest.mark.usefixtures("reciting")
def test_an_altered_selected_policy_is_not_scored(prepared: Layout, cache: ProcessCache) -> None:
    for key in SKILLS:
        evaluate(prepared, key, cache)
    select_checkpoint(StageContext(prepared, SelectionInputs.of(parameters()), "", cache))
    weights = prepared.policy("i002") / "adapter_model.safetensors"
    whole = weights.read_bytes()
    save_file({"a": torch.zeros(2)}, weights)
    try:
        with pytest.raises(ArtifactError, match=r"the weights of i002 .* are not those that were evaluated"):
            select_checkpoint(StageContext(prepared, SelectionInputs.of(parameters()), "", cache))
        with pytest.raises(ArtifactError, match=r"the weights of i002 .* are not those that were evaluated"):
            score(StageContext(prepared, ScoringInputs.of(parameters()), "test_normal", cache))
    finally:
        weights.write_bytes(whole)


@pytest.mark.usefixtures("reciting")
def test_a_broken_world_gives_no_score(
    prepared: Layout, cache: ProcessCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, whole = {spec.task_id for spec in read_tasks(prepared.world, TaskSpec)["dev"]}, PocketWorld.open

    def refusing(world: PocketWorld, task_id: str, seed: int) -> PocketEpisode:
        if task_id in broken:
            raise WorldFault("no disk is left")
        return whole(world, task_id, seed)

    monkeypatch.setattr(PocketWorld, "open", refusing)
    prepared.evaluation("i002").unlink(missing_ok=True)
    with pytest.raises(
        WorldBroke, match=r"^dev, i002: the world broke 9 of 9 .*\): no disk is left; over 5%"
    ) as raised:
        evaluate(prepared, "i002", cache)
    assert may_pass(raised.value) and is_expected(raised.value)
    assert not prepared.evaluation("i002").exists()
    broken = {min(broken)}
    params = parameters()
    every = params.model_copy(update={"evaluation": EvaluationConfig(every=1, scenarios=None)})
    found = evaluate(prepared, "i002", cache, every)
    assert (found.tasks, found.void_rollouts, found.tgc) == (60, 1, pytest.approx(100 * 59 / 60))
    assert "dev, i002: the world broke 1 of 60 rollouts, which count as failures; most often" in caplog.text


@pytest.mark.parametrize("key", ["test_hard", ""])
def test_an_unknown_split_is_named(key: str, prepared: Layout) -> None:
    with pytest.raises(ValueError, match=rf"score: unknown split '{key}'; one of train, dev, test_normal"):
        score(StageContext(prepared, ScoringInputs.of(parameters()), key))


def test_a_real_engine_gives_the_same_bytes_twice(prepared: Layout) -> None:
    """An untrained model in the transformers engine solves nothing, but in the same way each time."""
    params = parameters(limits=AgentLimits(max_turns=2, max_tokens_per_turn=16))
    written = []
    for _ in range(2):
        cache = ProcessCache()
        found = evaluate(prepared, "i001", cache, params)
        cache.close()
        path = prepared.evaluation("i001"), prepared.evaluation_rollouts("i001")
        written.append([file.read_bytes() for file in path])
    assert (found.tgc, found.tgc_se, found.mean_return) == (0, 0, 0)
    assert written[0] == written[1]
    assert json.loads(written[0][0])["iteration"] == "i001"
