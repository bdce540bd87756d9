"""An episode's conversation and verdict; the server behind it."""

import random
import re
import sys
from pathlib import Path

import pytest

from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world import ExecutionTimeout
from tasks.core.interfaces.world_kind import open_world
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.records.files import ArtifactError
from tasks.core.rollouts.episode import shown_observation
from tasks.core.sandbox import ApiError
from tasks.core.worlds.pocketworld.apps import APPS, Release
from tasks.core.worlds.pocketworld.authoring import write_specs
from tasks.core.worlds.pocketworld.demonstrations import TrustedRepl
from tasks.core.worlds.pocketworld.episode import NO_CODE, ONLY_FIRST, Completion, PocketEpisode, Server
from tasks.core.worlds.pocketworld.full_prompt import _example, full_opening
from tasks.core.worlds.pocketworld.problem import build_problem, draw_problem, login_code, oracle, turn
from tasks.core.worlds.pocketworld.state import POOLS
from tasks.core.worlds.pocketworld.templates import TEMPLATES
from tasks.core.worlds.pocketworld.world import PocketWorld

NULL_BYTE = "SyntaxError" if sys.version_info >= (3, 11, 4) else "ValueError"


@pytest.fixture(scope="module")
def world(tmp_path_factory, specs):
    folder = tmp_path_factory.mktemp("pocketworld") / "world"
    write_specs(folder, specs)
    world = open_world(WorldSection.of("pocketworld"), folder)
    yield world
    world.close()


@pytest.fixture
def episode(world):
    episode = world.open("train_001_1", seed=0)
    yield episode
    episode.close()


def test_the_prompt_is_short_and_ends_with_the_instruction(world, episode):
    assert [message["role"] for message in episode.prompt] == ["system", "user"]
    assert episode.prompt[1]["content"] == world.tasks("train")[0].instruction
    assert len(" ".join(message["content"] for message in episode.prompt)) < 200


def test_a_turn_without_code_says_what_to_do(episode):
    seen = episode.step("I think about it.")
    assert (seen.text, seen.failed, seen.done, seen.code_blocks) == (NO_CODE, True, False, 0)


def test_only_the_first_of_several_blocks_runs(episode):
    seen = episode.step(f"First.\n{turn('x=3')}\nThen.\n{turn('x=4')}")
    assert (seen.text, seen.ending, seen.code_blocks) == ("Execution successful.", f"\n{ONLY_FIRST}", 2)
    assert episode.step(turn("print(x)")).text == "3"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("print(1", "SyntaxError: '(' was never closed"),
        ("x=\x00", f"{NULL_BYTE}: source code string cannot contain null bytes"),
        ("1/0", "ZeroDivisionError: division by zero"),
        ("apis.notes.login(password=missing)", "NameError: name 'missing' is not defined"),
        ("apis.nowhere.find(title='a')", "ApiError: There is no app nowhere."),
        ("apis.notes.login()", "ApiError: notes.login takes password."),
    ],
)
def test_broken_code_gives_one_short_line(episode, code, error):
    seen = episode.step(turn(code))
    assert seen.failed
    assert not seen.done
    assert seen.text.startswith(f"Execution failed. {error}")
    assert "\n" not in seen.text


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        ("1/0\n```", "Execution failed. ZeroDivisionError: division by zero"),
        ("```\n```python\nprint(2)\n```", ONLY_FIRST),
        ("1/0\n```\n```python\nprint(2)\n```", f"Execution failed. ZeroDivisionError: division by zero\n{ONLY_FIRST}"),
    ],
)
def test_what_decides_is_shown_behind_much_output(episode, end, shown):
    chat = load_chat_format(Path("data/base_policies/pocket"))
    seen = episode.step(f"```python\nfor i in range(300): print('line', i)\n{end}")
    text = shown_observation(chat, seen.text, seen.ending, closed=True, max_tokens=256).text
    first, note, *last = text.splitlines()[-3 - shown.count("\n") - 1 :]
    assert first.startswith("line ") and last[0] == "line 299" and "\n".join(last[1:]) == shown
    assert note == f"[output cut: {300 - 1 - int(first.split()[1]) - 1} lines left out]"


def test_an_error_that_is_too_long_says_so(episode):
    seen = episode.step(turn("raise ValueError('x' * 10000)"))
    assert seen.text.endswith("x ... (10012 characters in all)")


def test_calls_are_logged_with_their_failures(episode):
    seen = episode.step(turn('apis.supervisor.passwords()\napis.notes.login(password="dummy")'))
    assert seen.api_calls == ("supervisor.passwords", "notes.login")
    assert seen.failed_api_calls == ("notes.login",)
    assert episode.step(turn("x=1")).api_calls == ()


def test_a_caught_api_error_is_no_failed_turn(episode):
    seen = episode.step(turn("try:\n    apis.notes.login(password='a')\nexcept Exception:\n    print('caught')"))
    assert (seen.text, seen.failed, seen.failed_api_calls) == ("caught", False, ("notes.login",))


def test_agent_code_cannot_reach_the_state(episode):
    episode.step(turn("apis.__dict__.clear() if hasattr(apis, '__dict__') else None"))
    seen = episode.step(
        turn("import gc\nprint(any(type(o).__name__ in ('Server', 'Problem') for o in gc.get_objects()))")
    )
    assert "True" not in seen.text


def test_giving_up_ends_the_episode_without_success(episode):
    seen = episode.step(turn('apis.supervisor.complete_task(status="fail")'))
    assert seen.done
    assert "the task was completed, not given up" in episode.evaluate().failed


def test_code_that_ends_its_process_ends_the_episode(episode):
    with pytest.raises(ExecutionTimeout):
        episode.step(turn("import os\nos._exit(0)"))


def test_an_altered_task_cannot_be_opened(specs):
    altered = specs["train"][0].model_copy(update={"seed": 5})
    with pytest.raises(ArtifactError, match="train_001_1"):
        PocketWorld({"train": [altered]}, lambda _: TrustedRepl()).open("train_001_1", 0)


def test_the_prompt_has_the_docs_of_the_tasks_apps_and_an_example_of_another(all_specs):
    for spec in random.Random(0).sample(all_specs, 60):
        problem = build_problem(spec)
        prompt = PocketEpisode(problem, TrustedRepl(), full=True).prompt
        asked, example = prompt[-1]["content"], prompt[1]["content"]
        assert asked.endswith(f"Task: {problem.instruction}")
        for app in problem.apps:
            assert "\n".join(problem.releases[app].docs().values()) in asked
            assert f"Docs of {app}:" not in example
        assert [message["role"] for message in prompt[1:]] == ["user", "assistant"] * 2 + ["user"]


def test_the_worked_example_solves_its_task_and_says_what_the_world_says(all_specs, play):
    for app in APPS:
        other = next(problem for spec in all_specs if app not in (problem := build_problem(spec)).apps)
        prompt = full_opening(other, "Execution successful.")
        shown = re.search(r"Docs of (\w+)", prompt[1]["content"])
        episode = PocketEpisode(_example(shown.group(1)), TrustedRepl())
        observed = episode.step(prompt[2]["content"])
        assert (observed.text, observed.failed) == (prompt[3]["content"], False)
        episode.step(prompt[4]["content"])
        assert episode.evaluate().success


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


@pytest.fixture
def server() -> Server:
    notes = (APPS["notes"], APPS["payments"])
    return Server(draw_problem([(TEMPLATES["create"], notes[:1])], notes, POOLS["train"], 5))


@pytest.fixture
def notes(server: Server) -> Release:
    server.call("notes", "login", [], {"password": server.problem.passwords["notes"]})
    return server.problem.releases["notes"]


def refusal(server, app, name, /, *args, **kwargs) -> str:
    before = {place: [dict(row) for row in rows] for place, rows in server.state.items()}
    with pytest.raises(ApiError) as caught:
        server.call(app, name, list(args), kwargs)
    assert server.state == before
    assert server.log[-1] == (f"{app}.{name}", True)
    return str(caught.value)


def test_unknown_apps_and_calls_are_named(server):
    assert refusal(server, "nowhere", "find") == "There is no app nowhere."
    assert refusal(server, "notes", "fly") == "notes has no API fly."
    assert refusal(server, "supervisor", "fly") == "supervisor has no API fly."
    assert refusal(server, "api_docs", "show_api_doc", app="nowhere") == "There is no app nowhere."
    assert refusal(server, "api_docs", "show_api_doc", app="notes", api="fly") == "notes has no API fly."
    assert refusal(server, "api_docs", "show_api_doc", app=["notes"]) == "app must be text."
    assert refusal(server, "api_docs", "list_apis", app={"notes": 1}) == "app must be text."
    assert refusal(server, "api_docs", "show_api_doc", app="notes", api=3) == "api must be text."


def test_nothing_works_before_the_login(server):
    release = server.problem.releases["notes"]
    assert refusal(server, "notes", release.call("list")) == "Log in to notes first."
    assert refusal(server, "notes", "login", password="dummy") == "The password is wrong."
    assert refusal(server, "notes", "login") == "notes.login takes password."
    assert refusal(server, "notes", "login", token="x") == "notes.login takes password."
    assert refusal(server, "notes", release.call("list")) == "Log in to notes first."


def test_a_login_opens_one_app_only(server, notes):
    assert len(server.call("notes", notes.call("list"), [], {})) >= 5
    payments = server.problem.releases["payments"]
    assert refusal(server, "payments", payments.call("list")) == "Log in to payments first."


def test_arguments_are_checked(server, notes):
    create, delete, find = (notes.call(kind) for kind in ("create", "delete", "find"))
    title, tag = notes.labels["title"], notes.labels["tag"]
    takes = f"notes.{create} takes {title}, {tag}."
    assert refusal(server, "notes", create, "a b", "work") == "Use keyword arguments."
    assert refusal(server, "notes", create, **{title: "a b"}) == takes
    assert refusal(server, "notes", create, **{title: "a b", tag: "work", "x": 1}) == takes
    assert refusal(server, "notes", create, **{title: "a b", tag: 7}) == f"{tag} must be text."
    assert refusal(server, "notes", create, **{title: None, tag: "work"}) == f"{title} must be text."
    assert refusal(server, "notes", find) == f"notes.{find} takes {title}, {tag}."
    assert refusal(server, "notes", delete) == f"notes.{delete} takes id."
    for wrong in ("3", True, 3.0, None, [3]):
        assert refusal(server, "notes", delete, id=wrong) == "id must be a number."
    assert refusal(server, "notes", delete, id=-1) == "There is no note with id -1."


def test_records_and_docs_spell_fields_alike(server, notes):
    row = server.call("notes", notes.call("list"), [], {})[0]
    assert list(row) == ["id", notes.labels["title"], notes.labels["tag"]]
    assert server.call("api_docs", "show_api_doc", [], {"app": "notes"}).splitlines()[0] == f"note: {', '.join(row)}"
    assert set(server.call("api_docs", "list_apis", [], {"app": "notes"})) == {"login", *notes.calls}
    create = notes.call("create")
    shown = server.call("api_docs", "show_api_doc", [], {"app": "notes", "api": create})
    assert shown == f"{create}({', '.join(list(row)[1:])})"


def test_answers_share_nothing_with_the_state(server, notes):
    server.call("notes", notes.call("list"), [], {})[0][notes.labels["title"]] = "changed"
    assert server.state == server.problem.state
    server.call("supervisor", "passwords", [], {}).clear()
    assert server.problem.passwords["notes"]


def test_operations_change_a_copy_of_the_initial_state(server, notes):
    rows = server.call("notes", notes.call("list"), [], {})
    server.call("notes", notes.call("delete"), [], {"id": rows[0]["id"]})
    server.call("notes", notes.call("update"), [], {"id": rows[1]["id"], notes.labels["tag"]: "home"})
    left = server.call("notes", notes.call("list"), [], {})
    assert [row["id"] for row in left] == [row["id"] for row in rows[1:]]
    assert left[0][notes.labels["tag"]] == "home"
    assert len(server.problem.state["notes", "note"]) == len(rows)


def test_completion_is_final_and_checked(server):
    assert refusal(server, "supervisor", "complete_task", status="maybe") == "status must be success or fail."
    assert refusal(server, "supervisor", "complete_task", status=["fail"]) == "status must be success or fail."
    assert refusal(server, "supervisor", "complete_task", answer=[1]) == "answer must be a single value."
    assert refusal(server, "supervisor", "complete_task", reply=1) == "supervisor.complete_task takes answer, status."
    assert server.completion is None
    server.call("supervisor", "complete_task", [], {"answer": 3})
    assert server.completion == Completion(3, "success")
    assert refusal(server, "supervisor", "complete_task", answer=4) == "The task is complete."
    assert server.completion == Completion(3, "success")


def test_system_apps_answer(server):
    assert set(server.call("api_docs", "list_apps", [], {})) == {"api_docs", "supervisor", "notes", "payments"}
    assert set(server.call("supervisor", "profile", [], {})) == {"first_name", "last_name"}
    assert server.call("api_docs", "list_apis", [], {"app": "supervisor"}) == ["passwords", "profile", "complete_task"]
    docs = server.call("api_docs", "show_api_doc", [], {"app": "supervisor", "api": "complete_task"})
    assert docs == "complete_task(answer, status)"


def test_an_id_is_never_given_twice(server, notes):
    """Else deleting a record and adding another would look like no deletion."""
    last = server.call("notes", notes.call("list"), [], {})[-1]["id"]
    server.call("notes", notes.call("delete"), [], {"id": last})
    values = {notes.labels["title"]: "a b", notes.labels["tag"]: "work"}
    assert server.call("notes", notes.call("create"), [], values)["id"] > last
