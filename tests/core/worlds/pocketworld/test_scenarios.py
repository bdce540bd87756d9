import json
from collections import Counter

import pytest

from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import WorldInputs
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.text_games.task_files import read_tasks
from tasks.core.worlds.pocketworld.apps import HELD_OUT_APPS
from tasks.core.worlds.pocketworld.authoring import generate_specs, write_specs
from tasks.core.worlds.pocketworld.kind import PocketworldConfig
from tasks.core.worlds.pocketworld.problem import TaskSpec, build_problem, completion_code, oracle, turn
from tasks.core.worlds.pocketworld.state import POOLS
from tasks.prepare_world import prepare_world

HELD_OUT = {app.name for app in HELD_OUT_APPS}
EXPECTED = {"train": (12, 12, 11), "dev": (8, 7, 5), "test_normal": (21, 21, 14), "test_challenge": (56, 56, 27)}


def test_the_oracle_passes_every_test_of_every_task(all_specs, play):
    for spec in all_specs:
        problem = build_problem(spec)
        verdict = play(problem, oracle(problem)).evaluate()
        assert verdict.success, (spec.task_id, verdict.failed)
        assert 3 <= len(verdict.passed) <= 8


def test_doing_nothing_fails_every_task(all_specs, play):
    for spec in all_specs:
        verdict = play(build_problem(spec), [turn("apis.supervisor.complete_task()")]).evaluate()
        assert not verdict.success, spec.task_id
        assert 0 < verdict.pass_share < 1


def test_a_side_effect_fails_every_task(all_specs, play):
    """A right solution that also writes to another app, or adds to an app that it uses, is no solution."""
    for spec in all_specs:
        problem = build_problem(spec)
        release = problem.releases["mail"]
        operation = release.app.operation("create")
        values = ", ".join(f'{label}="side effect"' for label in release.parameters(operation))
        login = 'apis.mail.login(password=apis.supervisor.passwords()["mail"])'
        *work, end = oracle(problem)
        extra = turn(f"{login}\napis.mail.{release.call('create')}({values})")
        assert play(problem, [*work, extra, end]).evaluate().failed == ("nothing else changed",), spec.task_id


def test_giving_up_at_the_end_is_no_success(all_specs, play):
    for spec in all_specs[::7]:
        problem = build_problem(spec)
        turns = [
            *oracle(problem)[:-1],
            turn(completion_code(problem).replace(")", ', status="fail")').replace("(,", "(")),
        ]
        assert play(problem, turns).evaluate().failed == ("the task was completed, not given up",)


def test_the_splits_have_the_papers_proportions(specs):
    for split, tasks in specs.items():
        scenarios = {spec.scenario_id: spec.difficulty for spec in tasks}
        counts = Counter(scenarios.values())
        assert (counts[1], counts[2], counts[3]) == EXPECTED[split]
        assert len(tasks) == 3 * len(scenarios)
    assert {split: len(tasks) for split, tasks in specs.items()} == {
        "train": 105,
        "dev": 60,
        "test_normal": 168,
        "test_challenge": 417,
    }


def test_ids_are_unique_and_instructions_of_a_scenario_differ(all_specs):
    assert len({spec.task_id for spec in all_specs}) == len(all_specs)
    assert all(spec.task_id.startswith(f"{spec.scenario_id}_") for spec in all_specs)
    assert max(Counter((spec.scenario_id, spec.instruction) for spec in all_specs).values()) == 1


def test_only_and_every_challenge_task_needs_a_held_out_app(all_specs):
    for spec in all_specs:
        needs = bool(HELD_OUT & set(build_problem(spec).apps))
        assert needs == (spec.split == "test_challenge"), spec.task_id


def test_two_word_entities_of_the_splits_are_disjoint(all_specs):
    pools = [set(pool.values["title"]) | set(pool.values["name"]) for pool in POOLS.values()]
    assert all(not a & b for i, a in enumerate(pools) for b in pools[:i])
    assert all(len(pool) > 200 for pool in pools)


def test_the_seed_decides_everything(specs):
    assert generate_specs(2502, PocketworldConfig()) == specs
    other = generate_specs(2503, PocketworldConfig())
    assert all(a.instruction != b.instruction for a, b in zip(other["train"][:9], specs["train"][:9], strict=True))


def test_releases_differ_between_tasks_of_a_scenario(specs):
    """So that docs must be read: knowing one task's names does not help with the next."""
    names = [build_problem(spec).releases["notes"].calls for spec in specs["train"]]
    assert len(set(names)) > 80


def test_a_larger_harder_world_keeps_the_proportions_and_every_rule(play):
    """Twice the scenarios, three requests a task: by an oracle, by doing nothing, and by doing one request of three."""
    specs = generate_specs(7, PocketworldConfig(scale=2, chain=3))
    assert [len(tasks) for tasks in specs.values()] == [210, 120, 336, 834]
    for spec in [spec for tasks in specs.values() for spec in tasks[::11]]:
        problem = build_problem(spec)
        used = [{app.name for app in clause.apps} for clause in problem.clauses]
        assert spec.template.count("+") == 2 and len(spec.apps) == len(set(spec.apps)), spec
        assert set(spec.apps) == set().union(*used)
        assert sum(clause.answer(problem.state) is not None for clause in problem.clauses) <= 1
        turns = oracle(problem)
        assert play(problem, turns).evaluate().success, spec.task_id
        assert not play(problem, [turns[0], turns[1], turns[-1]]).evaluate().success, spec.task_id
        assert (HELD_OUT & set(spec.apps) != set()) == (spec.split == "test_challenge")


def test_a_share_of_the_scenarios_is_chained_at_every_difficulty():
    specs = generate_specs(7, PocketworldConfig(chain=2, chained_share=0.5))
    for split, tasks in specs.items():
        for difficulty, scenarios in enumerate(EXPECTED[split], start=1):
            longer = {spec.scenario_id for spec in tasks if spec.difficulty == difficulty and "+" in spec.template}
            assert abs(len(longer) - scenarios / 2) <= 1, (split, difficulty)


@pytest.fixture
def folder(tmp_path, specs):
    write_specs(tmp_path / "world", specs)
    return tmp_path / "world"


def rewrite(path, number, **changes):
    lines = path.read_text().splitlines()
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | changes)
    path.write_text("\n".join(lines) + "\n")


def test_what_is_written_is_read(folder, specs):
    assert read_tasks(folder, TaskSpec) == specs


def test_the_same_seed_writes_the_same_bytes(folder, tmp_path):
    prepare_world_folder(WorldSection.of("pocketworld", seed=2502), tmp_path / "again")
    for file in folder.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "world"]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"template": "fly"}, "unknown template 'fly'"),
        ({"apps": ["todo"]}, r"template create has no apps \['todo'\]"),
        ({"difficulty": 2}, "difficulty 2, but template create has 1"),
    ],
)
def test_a_broken_line_is_named(folder, changes, rule):
    rewrite(folder / "train.jsonl", 2, **changes)
    with pytest.raises(ArtifactError, match=rf"train\.jsonl: line 2: .*{rule}"):
        read_tasks(folder, TaskSpec)


def test_an_altered_task_cannot_be_opened(folder):
    rewrite(folder / "train.jsonl", 1, seed=5)
    world = open_world(WorldSection.of("pocketworld"), folder)
    with pytest.raises(ArtifactError, match="train_001_1"):
        world.open("train_001_1", 0)


def test_the_stage_replaces_what_was_there(tmp_path, specs):
    layout = Layout(tmp_path)
    layout.world.mkdir(parents=True)
    (layout.world / "stale").touch()
    params = Params(iterations=2, world=WorldSection.of("pocketworld", seed=2502))
    prepare_world(StageContext(layout, WorldInputs.of(params)))
    assert sorted(path.stem for path in layout.world.iterdir()) == sorted(specs)
    assert read_tasks(layout.world, TaskSpec) == specs
