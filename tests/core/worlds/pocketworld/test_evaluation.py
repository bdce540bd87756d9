import pytest

from tasks.core.worlds.pocketworld.apps import APPS
from tasks.core.worlds.pocketworld.problem import draw_problem, login_code, oracle, turn
from tasks.core.worlds.pocketworld.state import POOLS
from tasks.core.worlds.pocketworld.templates import TEMPLATES

COMPLETE = turn("apis.supervisor.complete_task()")


def draw(template, *names, seed=1):
    apps = tuple(APPS[name] for name in names)
    return draw_problem([(TEMPLATES[template], apps)], apps, POOLS["train"], seed)


def test_deleting_one_of_several_earns_a_part(play):
    problem = draw("delete_every", "notes")
    every = oracle(problem)[1]
    one = every.replace("):", ")[:1]:")
    assert one != every
    verdict = play(problem, [one, COMPLETE]).evaluate()
    assert set(verdict.failed) == {"notes: every note that had to go is gone"}
    assert "notes: one note that had to go is gone" in verdict.passed


def test_updating_too_much_breaks_only_what_else_changed(play):
    problem = draw("update_every", "notes")
    release = problem.releases["notes"]
    selection = problem.clauses[0].selection.code(problem.releases)
    everything = oracle(problem)[1].replace(selection, f"apis.notes.{release.call('list')}()")
    verdict = play(problem, [everything, COMPLETE]).evaluate()
    assert verdict.failed == ("nothing else changed",)


def test_a_record_with_a_wrong_value_is_new_but_not_as_asked(play):
    problem = draw("create", "notes")
    title = problem.clauses[0].values["title"]
    verdict = play(problem, [oracle(problem)[1].replace(title, "wrong title"), COMPLETE]).evaluate()
    assert set(verdict.failed) == {"notes: every new note as asked", "nothing else changed"}
    assert "notes: 1 new note" in verdict.passed


def test_creating_twice_is_a_side_effect(play):
    problem = draw("create", "notes")
    action = oracle(problem)[1]
    assert play(problem, [action, action, COMPLETE]).evaluate().failed == ("nothing else changed",)


def test_undoing_a_side_effect_leaves_none(play):
    problem = draw("count", "notes")
    release = problem.releases["notes"]
    title, tag = (release.labels[field] for field in ("title", "tag"))
    code = f'x=apis.notes.{release.call("create")}({title}="a b", {tag}="work")'
    undone = f'apis.notes.{release.call("delete")}(id=x["id"])'
    turns = [turn(f"{login_code('notes')}\n{code}\n{undone}"), *oracle(problem)]
    assert play(problem, turns).evaluate().success


@pytest.mark.parametrize(("wrap", "right"), [("str(answer)", True), ("answer+1", False), ("None", False)])
def test_answers_compare_as_text(play, wrap, right):
    problem = draw("count", "notes")
    turns = [oracle(problem)[1], turn(f"apis.supervisor.complete_task(answer={wrap})")]
    assert play(problem, turns).evaluate().success is right


def test_an_unfinished_episode_has_not_completed_the_task(play):
    problem = draw("create", "notes")
    assert play(problem, oracle(problem)[:-1]).evaluate().failed == ("the task was completed, not given up",)


def test_a_given_up_question_with_the_right_answer_is_no_success(play):
    problem = draw("ask_field", "music")
    turns = [oracle(problem)[1], turn('apis.supervisor.complete_task(answer=answer, status="fail")')]
    assert play(problem, turns).evaluate().failed == ("the task was completed, not given up",)
