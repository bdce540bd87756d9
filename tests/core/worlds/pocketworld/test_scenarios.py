"""The tasks that are drawn and the demonstrations that are played of such."""

import re
from collections import Counter
from dataclasses import replace
from statistics import mean

import pytest

from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import WorldInputs
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.layout import Layout
from tasks.core.text_games.task_files import read_tasks
from tasks.core.worlds.pocketworld.apps import APPS, HELD_OUT_APPS, KNOWN_APPS
from tasks.core.worlds.pocketworld.authoring import generate_specs
from tasks.core.worlds.pocketworld.demonstrations import TrustedRepl, demonstrations, play_demonstrations
from tasks.core.worlds.pocketworld.episode import PocketEpisode
from tasks.core.worlds.pocketworld.habits import PERFECT
from tasks.core.worlds.pocketworld.kind import PocketworldConfig
from tasks.core.worlds.pocketworld.problem import TaskSpec, build_problem, completion_code, oracle, turn
from tasks.core.worlds.pocketworld.state import POOLS
from tasks.core.worlds.pocketworld.templates import KNOWN_TEMPLATES
from tasks.core.worlds.pocketworld.vocabulary import vocabulary
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


def test_instructions_of_a_scenario_differ(all_specs):
    assert max(Counter((spec.scenario_id, spec.instruction) for spec in all_specs).values()) == 1


def test_only_and_every_challenge_task_needs_a_held_out_app(all_specs):
    for spec in all_specs:
        needs = bool(HELD_OUT & set(build_problem(spec).apps))
        assert needs == (spec.split == "test_challenge"), spec.task_id


def test_two_word_entities_of_the_splits_are_disjoint(all_specs):
    pools = [set(pool.values["title"]) | set(pool.values["name"]) for pool in POOLS.values()]
    assert all(not a & b for i, a in enumerate(pools) for b in pools[:i])
    assert all(len(pool) > 200 for pool in pools)


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


def test_the_stage_replaces_what_was_there(tmp_path, specs):
    layout = Layout(tmp_path)
    layout.world.mkdir(parents=True)
    (layout.world / "stale").touch()
    params = Params(iterations=2, world=WorldSection.of("pocketworld", seed=2502))
    prepare_world(StageContext(layout, WorldInputs.of(params)))
    assert sorted(path.stem for path in layout.world.iterdir()) == sorted(specs)
    assert read_tasks(layout.world, TaskSpec) == specs


TOKEN = re.compile(r"[A-Za-z_]+|\d{1,2}|[^\w ]")


@pytest.fixture(scope="module")
def perfect():
    return list(play_demonstrations(1, 400, imperfect=False))


@pytest.fixture(scope="module")
def imperfect():
    return list(play_demonstrations(1, 1000, imperfect=True))


def said(played) -> str:
    return "\n".join(message["content"] for message in played.messages if message["role"] == "assistant")


def test_perfect_ones_always_succeed_without_an_error(perfect):
    assert all(played.evaluation.success for played in perfect)
    assert not any("Execution failed" in message["content"] for played in perfect for message in played.messages)


def test_roles_alternate_and_the_agent_speaks_last(perfect, imperfect):
    for played in perfect + imperfect:
        roles = [message["role"] for message in played.messages]
        assert roles == ["system", *["user", "assistant"] * (len(roles) // 2)]


def test_chained_ones_make_two_requests_of_apps_that_they_do_not_share():
    for played in play_demonstrations(1, 60, imperfect=False, chained_share=1.0):
        apps = [{app.name for app in clause.apps} for clause in played.problem.clauses]
        assert played.evaluation.success and any(not first & later for first in apps for later in apps)


def test_a_narrow_set_shows_the_clauses_of_its_templates_alone():
    shown = [template for template in KNOWN_TEMPLATES if template.name in {"create", "count"}]
    played = list(play_demonstrations(1, 40, imperfect=False, templates=shown))
    assert {type(clause).__name__ for one in played for clause in one.problem.clauses} == {"Create", "Ask"}


def test_the_same_arguments_give_the_same_conversations():
    first = list(demonstrations(3, 20, imperfect=True))
    assert first == list(demonstrations(3, 20, imperfect=True))
    assert first != list(demonstrations(4, 20, imperfect=True))


def test_every_word_is_in_the_vocabulary(perfect, imperfect, all_specs):
    known = set(vocabulary())
    texts = [message["content"] for played in perfect + imperfect for message in played.messages]
    for spec in all_specs[::3]:
        problem = build_problem(spec)
        episode = PocketEpisode(problem, TrustedRepl())
        texts += [message["content"] for message in episode.prompt]
        texts += [text for turn in oracle(problem) for text in (turn, episode.step(turn).text)]
        texts += [line for release in problem.releases.values() for line in release.docs().values()]
    assert {token for text in texts for token in TOKEN.findall(text)} <= known


def test_the_held_out_apps_never_occur_but_made_up_ones_do(perfect, imperfect):
    clauses = [clause for played in perfect + imperfect for clause in played.problem.clauses]
    used = {app for clause in clauses for app in clause.apps}
    assert not used & set(HELD_OUT_APPS)
    assert used >= set(KNOWN_APPS)
    assert {app.name for app in used} - set(APPS)


def test_entities_come_from_the_train_pool(perfect):
    for played in perfect:
        for (_, _), rows in played.problem.state.items():
            for row in rows:
                assert all(row[field] in POOLS["train"].values[field] for field in row if field != "id")


def test_imperfect_ones_fail_in_several_ways_and_earn_parts(imperfect):
    scores = [played.evaluation.pass_share for played in imperfect]
    assert 0.2 < mean(played.evaluation.success for played in imperfect) < 0.6
    assert len({round(score, 2) for score in scores}) >= 6


SKIPS = replace(PERFECT, skip_docs=1.0)


@pytest.mark.parametrize(
    ("habits", "trace", "least"),
    [
        (SKIPS, "I must read the docs", 0.2),
        (replace(SKIPS, give_up=1.0), 'status="fail"', 0.5),
        (replace(PERFECT, guess_password=1.0), 'password="dummy"', 1.0),
        (replace(PERFECT, several_blocks=1.0), "```\n```python", 1.0),
        (replace(PERFECT, finish_early=1.0, thought=1.0), "That should work.", 1.0),
    ],
)
def test_each_habit_leaves_its_trace(habits, trace, least):
    played = list(play_demonstrations(2, 150, imperfect=True, habits=habits))
    assert mean(trace in said(one) for one in played) >= least


@pytest.mark.parametrize("habit", ["give_up", "finish_early", "overlook_block", "forget_clause", "wrong_filter"])
def test_habits_cost_successes(habit):
    base = replace(PERFECT, skip_docs=0.5, several_blocks=0.5)
    worse = replace(base, **{habit: 1.0})
    scores = [
        mean(one.evaluation.success for one in play_demonstrations(2, 200, imperfect=True, habits=habits))
        for habits in (base, worse)
    ]
    assert scores[0] > 0.95
    assert scores[1] < scores[0] - 0.05
