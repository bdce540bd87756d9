"""Call sequences that no model wrote, and how they are played."""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from tasks.core.interfaces.world import Evaluation, Observation
from tasks.core.tool_calls import call_text
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.world import Tau2World

Call = tuple[str, dict[str, Any]]
LINE = {"customer_id": "C1001", "line_id": "L1002"}
FIXES: list[Call] = [
    ("reseat_sim_card", {}),
    ("reset_apn_settings", {}),
    ("reboot_device", {}),
    ("set_network_mode_preference", {"mode": "4g_5g_preferred"}),
    ("disconnect_vpn", {}),
    ("grant_app_permission", {"app_name": "messaging", "permission": "storage"}),
    ("grant_app_permission", {"app_name": "messaging", "permission": "sms"}),
    ("enable_roaming", LINE),
    ("refuel_data", {**LINE, "gb_amount": 2.0}),
]
TOGGLES: list[Call] = [
    (f"toggle_{name}", {}) for name in ("airplane_mode", "data", "roaming", "data_saver_mode", "wifi_calling")
]
HAND_OVER: list[Call] = [("transfer_to_human_agents", {"summary": "I cannot fix the issue."})]
_VALUES: dict[str, Sequence[Any]] = {
    "customer_id": ("C1001", "C1002", "C9", 7),
    "line_id": ("L1002", "L1001", "L9", None),
    "id": ("L1002", "C1001", "P1002", "B1001321", "D1002", "X", 3, []),
    "bill_id": ("B1001321", "B1234321", "B1002", "none"),
    "gb_amount": (2.0, 1, -1, 0, "2.0", 1e300, 10**400),
    "mode": ("4g_5g_preferred", "2g_only", "5g", 4, None),
    "app_name": ("messaging", "browser", "no app", ["messaging"]),
    "permission": ("sms", "storage", "camera", "SMS", "model_dump", 5),
    "apn_settings": ({"apn_name": "internet"}, {"apn_name": "broken"}, {}, "internet", 5),
    "phone_number": ("555-123-2002", "555", None),
    "full_name": ("John Smith", ""),
    "dob": ("1985-06-15", ""),
    "limit": (12, 1, 0, -1, "a", 10**30),
    "summary": ("I cannot fix the issue.", ""),
    "reason": ("asked", ""),
}


def random_messages(schemas: Sequence[dict[str, Any]], solution: list[Call], draw: random.Random) -> list[list[Call]]:
    """Messages of one or more calls: some of the solution, some of any tool with good or bad arguments."""
    messages = []
    for call in [*solution, *[None] * draw.randrange(12)]:
        calls = [call or _random_call(schemas, draw)]
        calls += [_random_call(schemas, draw) for _ in range(draw.choice((0, 0, 0, 1, 3)))]
        messages.append(calls)
    draw.shuffle(messages)
    if draw.random() < 0.05:
        messages *= draw.choice((9, 30))
    return [*messages[: draw.randrange(1, len(messages) + 1)], [("done", {})]]


def _random_call(schemas: Sequence[dict[str, Any]], draw: random.Random) -> Call:
    schema = draw.choice([one["function"] for one in schemas if one["function"]["name"] != "done"])
    if draw.random() < 0.05:
        return draw.choice(("_toggle_data", "assert_can_send_mms", "break_vpn", "set_data_usage", "no_tool")), {}
    arguments = {name: draw.choice(_VALUES[name]) for name in schema["parameters"].get("properties", {})}
    if arguments and draw.random() < 0.1:
        arguments.pop(draw.choice(sorted(arguments)))
    if draw.random() < 0.05:
        arguments[draw.choice(("tool_name", "requestor", "self", "x"))] = draw.choice(("user", 1))
    return schema["name"], arguments


def solution_of(pool: Tau2Pool, task_id: str) -> list[Call]:
    return [(call["name"], call["arguments"]) for call in pool.solution(task_id).calls]


def one_each(calls: Sequence[Call]) -> list[list[Call]]:
    """A message for each call, and `done`."""
    return [[call] for call in [*calls, ("done", {})]]


def play(world: Tau2World, task_id: str, messages: Sequence[Sequence[Call]]) -> tuple[list[Observation], Evaluation]:
    """Play until the messages or the episode are over."""
    return play_turns(world, task_id, [call_text(list(calls), "json") for calls in messages])


def play_turns(world: Tau2World, task_id: str, turns: Sequence[str]) -> tuple[list[Observation], Evaluation]:
    """Play until the turns or the episode are over."""
    seen: list[Observation] = []
    with closing(world.open(task_id, 0)) as episode:
        for text in turns:
            seen.append(episode.step(text))
            if seen[-1].done:
                break
        return seen, episode.evaluate()


def as_lines(episodes: Sequence[tuple[str, Sequence[Sequence[Call]]]]) -> Iterator[str]:
    """The episodes as the official runner's script reads them."""
    for task_id, messages in episodes:
        yield json.dumps({"task_id": task_id, "messages": messages}) + "\n"
