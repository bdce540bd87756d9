import re
from dataclasses import replace
from statistics import mean

import pytest

from tasks.core.worlds.pocketworld.apps import APPS, HELD_OUT_APPS, KNOWN_APPS
from tasks.core.worlds.pocketworld.demonstrations import TrustedRepl, demonstrations, play_demonstrations
from tasks.core.worlds.pocketworld.episode import PocketEpisode
from tasks.core.worlds.pocketworld.habits import PERFECT
from tasks.core.worlds.pocketworld.problem import build_problem, oracle
from tasks.core.worlds.pocketworld.state import POOLS
from tasks.core.worlds.pocketworld.templates import KNOWN_TEMPLATES
from tasks.core.worlds.pocketworld.vocabulary import vocabulary

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
