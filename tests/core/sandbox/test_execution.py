"""The agent's view: kept state, printed text, short errors, API calls."""

import sys
from typing import Any

import pytest

from tasks.core.interfaces.world import WorldFault
from tasks.core.sandbox import ApiError, Execution, Repl, Sandbox, SandboxLimits


def echo(app: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if name == "refuse":
        raise ApiError("not allowed")
    return [app, name, args, kwargs]


def test_state_is_kept_and_silence_is_empty(repl: Repl) -> None:
    assert repl.run("import json\nx = 20\ndef double(): return 2 * x", echo) == Execution("", False)
    assert repl.run("x += 1; print(json.dumps(double()))", echo) == Execution("42\n", False)


def test_error_holds_print_line_and_last_line(repl: Repl) -> None:
    repl.run("def g():\n    return missing", echo)
    execution = repl.run("print('before')\ng()", echo)
    assert execution.failed
    assert execution.output == ("before\nline 2: return missing\nNameError: name 'missing' is not defined")
    assert execution.error == "NameError: name 'missing' is not defined"


def test_error_after_unfinished_line_starts_a_new_one(repl: Repl) -> None:
    assert repl.run("print('a', end='')\n1/0", echo).output == "a\nline 2: 1/0\nZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("y = (1", "SyntaxError: '(' was never closed"),
        ("x\0", "source code string cannot contain null bytes"),
        ("s = '\ud800'", "UnicodeEncodeError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError"),
        ("import numpy", "ModuleNotFoundError: No module named 'numpy'"),
        ("input()", f"RuntimeError: {'input(): ' if sys.version_info < (3, 13) else ''}lost sys.stdin"),
        ("raise Exception('x' * 10**6)", "Exception: xxx"),
        ("class E(Exception):\n  def __str__(self): raise ValueError\nraise E", "E: <the error's text"),
        ("apis.phone.refuse()", "ApiError: not allowed"),
        ("apis.phone()", "TypeError: apis.phone is not callable"),
        ("apis.phone.show({1})", "TypeError: set is no JSON value"),
        ("apis.phone.show(float('nan'))", "ValueError: Out of range float"),
        ("apis.phone.show('x' * 2**21)", "ValueError: too much data in one call"),
        ("a = []; a.append(a); apis.phone.show(a)", "ValueError: Circular reference"),
        ("x = [0] * 10**9", "MemoryError"),
    ],
)
def test_errors_end_with_their_last_line_and_leave_the_repl_alive(repl: Repl, code: str, error: str) -> None:
    execution = repl.run(code, echo)
    assert execution.failed
    assert error in execution.error
    assert execution.output.endswith(execution.error)
    assert len(execution.error) <= 500
    assert repl.run("print('alive')", echo).output == "alive\n"


def test_api_calls_carry_json_both_ways(repl: Repl) -> None:
    seen: list[Any] = []

    def record(*call: Any) -> Any:
        seen.append(call)
        return {"é\u2028\U0001f600": [1, 2.5, None, True]}

    execution = repl.run("print(apis.notes.add((1, 'ü'), tags={'a': [None]}))", record)
    assert seen == [("notes", "add", [[1, "ü"]], {"tags": {"a": [None]}})]
    assert execution.output == "{'é\\u2028😀': [1, 2.5, None, True]}\n"


def test_agents_may_catch_api_errors(repl: Repl) -> None:
    code = "try:\n    apis.phone.refuse()\nexcept ApiError as error:\n    print('caught', error)"
    assert repl.run(code, echo) == Execution("caught not allowed\n", False)


@pytest.mark.parametrize("broken", [lambda *_: {1}, lambda *_: float("nan"), lambda *_: 1 / 0])
def test_a_broken_api_is_the_worlds_fault_and_closes_the_repl(repl: Repl, broken: Any) -> None:
    with pytest.raises(WorldFault):
        repl.run("apis.a.b()", broken)
    with pytest.raises(WorldFault, match="closed"):
        repl.run("print(1)", echo)


def test_output_is_cut_while_it_is_printed(repl: Repl) -> None:
    execution = repl.run("line = 'x' * 10**6\nfor _ in range(1000): print(line)\n1/0", echo)  # 1 GB, memory is 64 MB
    assert execution.output.startswith("x" * 200 + "\n... (1000000800 more characters)\nline 3: 1/0\n")


def test_odd_unicode_is_replaced(repl: Repl) -> None:
    assert repl.run("print('a\\ud800b\\x00')", echo).output == "a?b\0\n"
    assert repl.run("raise Exception('\\udfff')", echo).error == "Exception: ?"


def test_addresses_are_masked(repl: Repl) -> None:
    assert repl.run("print(object(), hex(3735928559))", echo).output == "<object object at 0x0> 0xdeadbeef\n"


def test_two_repls_share_nothing(sandbox: Sandbox) -> None:
    first, second = sandbox.start(), sandbox.start()
    first.run("import builtins; builtins.secret = 1; x = 1", echo)
    assert second.run("print(x)", echo).error == "NameError: name 'x' is not defined"
    assert second.run("print(secret)", echo).failed
    first.close()
    second.close()


def test_same_seed_same_output_and_other_seed_other_output(sandbox: Sandbox) -> None:
    code = (
        "import random, uuid, os, time, datetime\n"
        "print(random.random(), uuid.uuid4(), os.urandom(3), time.time(), datetime.datetime.now(), hash('a'))"
    )
    outputs = []
    for seed in (1, 1, 2):
        repl = sandbox.start(seed)
        outputs.append(repl.run(code, echo).output)
        repl.close()
    assert outputs[0] == outputs[1] != outputs[2]


def test_clock_is_frozen_and_sleep_moves_it(sandbox: Sandbox) -> None:
    repl = sandbox.start(clock=86_400.0)
    code = (
        "import time\nfrom datetime import date, datetime\nnow = datetime.now()\ntime.sleep(3600)\n"
        "print(repr(now), isinstance(now, date), datetime.now() - now, date.today(), time.strftime('%H:%M'))"
    )
    expected = "datetime.datetime(1970, 1, 2, 0, 0) True 1:00:00 1970-01-02 01:00\n"
    assert repl.run(code, echo).output == expected
    repl.close()


def test_limits_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="request_bytes must be at least"):
        SandboxLimits(output_chars=10**6, request_bytes=10**6)
