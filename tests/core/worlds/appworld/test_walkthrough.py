"""An oracle as the turns of an agent, and the code of an agent with bad habits. No engine is needed."""

import ast

import pytest

from tasks.core.worlds.appworld.demonstrations.habits import (
    GUESSES,
    chatty,
    first_found,
    misnamed,
    paged,
    slipped,
)
from tasks.core.worlds.appworld.inside.authoring.walkthrough import Turn, walkthrough

BODY = """\
# I look.
found = all_pages(apis.phone.show_alarms, access_token=phone_token)
alarm = next(x for x in found if x["label"] == label)
# I change it.
if delete:
    apis.phone.delete_alarm(access_token=phone_token, alarm_id=alarm["alarm_id"])
else:
    apis.phone.update_alarm(access_token=phone_token, alarm_id=alarm["alarm_id"], **changed)
# I write it down.
print(f"~/{label}", (max if largest else min)(found), 2 * minutes, minutes < 9, [x for x in found if x["on"] == delete])
"""


def test_turns_hold_the_values_and_only_the_code_of_their_task() -> None:
    public = {"label": "Gym", "delete": False, "changed": {"enabled": True}, "largest": True, "minutes": 4}
    look, change, write = walkthrough(BODY, public)
    assert look == Turn(
        "I look.",
        "found = all_pages(apis.phone.show_alarms, access_token=phone_token)\n"
        "alarm = next((x for x in found if x['label'] == 'Gym'))",
    )
    assert change.code == (
        "apis.phone.update_alarm(access_token=phone_token, alarm_id=alarm['alarm_id'], enabled=True)"
    )
    assert write.code == "print('~/Gym', max(found), 2 * 4, True, [x for x in found if x['on'] == False])"
    assert "delete_alarm" in walkthrough(BODY, public | {"delete": True})[1].code


def test_code_before_the_first_thought_is_refused() -> None:
    with pytest.raises(ValueError, match="code without a thought: x = 1"):
        walkthrough("x = 1\n# I go on.\ny = 2\n", {})


def test_pages_are_a_loop_or_one_call() -> None:
    code = "found = all_pages(apis.a.b, access_token=t, read=True)\nprint(found)"
    assert paged(code, one_page=True) == "found = apis.a.b(access_token=t, read=True)\nprint(found)"
    calls = []

    class Api:
        def b(self, **arguments: object) -> list[int]:
            calls.append(arguments)
            return [7, 8] if arguments["page_index"] < 2 else []  # type: ignore[operator]

    names: dict[str, object] = {"apis": type("Apis", (), {"a": Api()}), "t": "token"}
    exec(paged(code, one_page=False).removesuffix("\nprint(found)"), names)
    assert names["found"] == [7, 8, 7, 8]
    assert calls[2] == {"access_token": "token", "read": True, "page_index": 2, "page_limit": 20}


def test_guessed_parameters_are_those_of_api_calls_alone() -> None:
    code = "title = x\napis.simple_note.create_note(access_token=token, title=title, content='title=1')"
    assert misnamed(code, {"title"}) == code.replace(" title=title", " name=title")
    assert misnamed(code, set()) == code
    login = "t = apis.a.login(username=u, password=p)"
    assert misnamed(login, set(GUESSES)) == login


@pytest.mark.parametrize(
    ("code", "assumed"),
    [
        ("p = next((x for x in found if x['a'] == 'A'))", "p = found[0]"),
        ("p = next((x['ids'] for x in found if x['a'] == 'A'))", "p = found[0]['ids']"),
        ("p = found[1]", "p = found[1]"),
    ],
)
def test_an_assumption_takes_the_first(code: str, assumed: str) -> None:
    assert first_found(code) == assumed


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("a = [x for x in y if x == 1]", "a = [x for x in y]"),
        ("for x in y:\n    if a and b:\n        f(x)", "for x in y:\n    if a:\n        f(x)"),
        ("apis.a.b(private=True, read=False)", "apis.a.b(private=False, read=False)"),
        ("p = next((x for x in y if x == 1))", "p = next((x for x in y if x == 1))"),
    ],
)
def test_a_slip_drops_a_condition_or_reverses_a_value(code: str, wrong: str) -> None:
    assert slipped(code) == wrong


def test_a_chatty_answer_is_still_code() -> None:
    code = chatty("apis.supervisor.complete_task(answer=found['content'])")
    assert code == """apis.supervisor.complete_task(answer=f"The answer is {found['content']}.")"""
    ast.parse(code)
