"""A program of many faces, with the standard library alone: its task says which one it shows."""

import json
import os
import random
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

TASK = json.loads(Path(os.environ["LOOPLINE_TASK"]).read_text())
BROKEN = {"name": "look", "arguments": "at"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def ask(messages: list[Any], key: str = os.environ["OPENAI_API_KEY"], **fields: Any) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps({"model": "any", "messages": messages, **fields}).encode(),
        {"Authorization": f"Bearer {key}"},
    )
    try:
        with urllib.request.urlopen(request) as response:
            return json.load(response)
    except HTTPError as error:
        return {"status": error.code, **json.load(error)}


def said(messages: list[Any], **fields: Any) -> dict[str, Any]:
    """Ask, and add the answer to the conversation."""
    message = ask(messages, **fields)["choices"][0]["message"]
    messages.append(message)
    return message


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def talk() -> dict[str, Any]:
    messages = [{"role": "system", "content": "Be brief."}, user("One?")]
    for text in ("Two?", "Three?"):
        said(messages)
        messages.append(user(text))
    said(messages)
    return {"reward": 0.5}


def branch() -> dict[str, Any]:
    """Two conversations in turn, a fork of the first, and one whose history is rewritten."""
    first, second = [user("First?")], [user("Second?")]
    for text in ("more", "still more"):
        said(first)
        said(second)
        first.append(user(text))
        second.append(user(text))
    said([*first[:2], user("or else?")])
    said(first)
    said([user("First?"), {"role": "assistant", "content": "rewritten"}, user("so?")])
    return {"passed": ["branched"], "failed": ["came back"]}


def at_once() -> dict[str, Any]:
    """Ask five things at once, each in its own time; then a fork for each answer, at once again."""

    def both(number: int) -> str:
        time.sleep(random.random() / 20)
        messages = [user("Same?" if number > 2 else f"Number {number}?")]
        said(messages)
        messages.append(user("and then?"))
        return str(said(messages)["content"])

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(both, range(5)))
    return {"reward": 1.0}


def use_tools() -> dict[str, Any]:
    messages = [user("Look!")]
    message = said(messages, tools=[TOOL])
    if not message.get("tool_calls"):
        return {"reward": 0.0}
    call = message["tool_calls"][0]
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": "a cat"})
    return {"reward": float(said(messages, tools=[TOOL])["content"] == "cat" and call["function"]["name"] == "look")}


def errors() -> dict[str, Any]:
    """Report what is refused, and how."""
    hello = [user("Hello?")]
    tried = {
        "key": ask(hello, key="sk-old"),
        "n": ask(hello, n=2),
        "tool_choice": ask(hello, tools=[TOOL], tool_choice="required"),
        "role": ask([{"role": "critic", "content": "Bad."}]),
        "image": ask([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
        "format": ask(hello, response_format={"type": "json_object"}),
        "arguments": ask(
            [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "b", "arguments": "c"}}]}]
        ),
        "unknown": ask(hello, best_of=3),
        "fine": ask(hello, temperature=0.3, seed=4, n=1, stop=None, user="me", response_format={"type": "text"}),
    }
    return {
        "passed": [
            f"{name} {found.get('status')} {found.get('error', {}).get('param')}" for name, found in tried.items()
        ]
    }


def endless() -> dict[str, Any]:
    messages = [user("Go on?")]
    while True:
        said(messages)
        messages.append(user("And?"))


def until_refused() -> dict[str, Any]:
    messages = [user("Go on?")]
    while "error" not in (found := ask(messages)):
        messages += [found["choices"][0]["message"], user("And?")]
    return {"reward": 0.25, "passed": [found["error"]["code"]]}


def crash() -> dict[str, Any]:
    ask([user("Hello?")])
    raise ZeroDivisionError("the program's own fault")


def brittle() -> dict[str, Any]:
    """Break by the seed, so that playing again may help."""
    return crash() if int(os.environ["LOOPLINE_SEED"]) % 2 else talk()


def hang() -> dict[str, Any]:
    time.sleep(600)
    return {}


RESULTS = {
    "nothing": None,
    "high": {"reward": 1.5},
    "nan": {"reward": float("nan")},
    "empty": {},
    "odd": {"rewards": 1},
    "quits": {"reward": 1.0},
}
does = TASK["does"]
result = RESULTS[does] if does in RESULTS else globals()[does]()
if result is not None:
    Path(os.environ["LOOPLINE_RESULT"]).write_text(json.dumps(result))
sys.exit(3 if does == "quits" else 0)
