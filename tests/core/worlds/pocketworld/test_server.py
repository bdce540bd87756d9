import pytest

from tasks.core.sandbox import ApiError
from tasks.core.worlds.pocketworld.apps import APPS, Release
from tasks.core.worlds.pocketworld.episode import Completion, Server
from tasks.core.worlds.pocketworld.problem import draw_problem
from tasks.core.worlds.pocketworld.state import POOLS
from tasks.core.worlds.pocketworld.templates import TEMPLATES


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
