"""The zygote: imports the package once, then forks players and the engine. Started by the pool.

A player is the environment of one episode, on which the package executes the calls of the agent and of its user. In:
{"open": the task's initial state}, then {"message": n, "calls": [{"id", "name", "arguments", "requestor"}]}. Out:
{"played": n, "results": [{"content": str, "error": bool}]}.
"""

import json
import os
import socket
import time
from typing import Any, NoReturn

from tasks.core.confinement.inside import frames
from tasks.core.confinement.inside.channel import Channel
from tasks.core.confinement.inside.forking import Forker
from tasks.core.confinement.inside.jail import Jail, keep_only
from tasks.core.worlds.tau2.inside.judge import Judge
from tasks.core.worlds.tau2.inside.package import Domain

_WARM_UP: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "telecom": (
        ("check_network_status", {}),
        ("toggle_data", {}),
        ("get_details_by_id", {"id": "L1002"}),
        ("get_bills_for_customer", {"customer_id": "C1001"}),
        ("refuel_data", {"customer_id": "C1001", "line_id": "L1002", "gb_amount": 2.0}),
        ("set_network_mode_preference", {"mode": "4g_5g_preferred"}),
        ("check_app_permissions", {"app_name": "messaging"}),
        ("nothing", {}),
    ),
    "retail": (("list_all_product_types", {}), ("get_order_details", {"order_id": "#W2378156"}), ("nothing", {})),
    "airline": (("list_all_airports", {}), ("get_user_details", {"user_id": "raj_sanchez_7340"}), ("nothing", {})),
}
_ROUNDS = 4


def serve_player(channel: Channel, environment: Any) -> NoReturn:
    """Execute calls until the channel closes."""
    while True:
        request = channel.receive()
        if "open" in request:
            begin(environment, request["open"])
        else:
            channel.send({"played": request["message"], "results": execute(environment, request["calls"])})


def begin(environment: Any, initial_state: dict[str, Any] | None) -> None:
    """Bring a fresh environment into a task's initial state, as the official runner does."""
    from tau2.data_model.tasks import InitialState

    state = InitialState.model_validate(initial_state or {})
    environment.set_state(state.initialization_data, state.initialization_actions, state.message_history or [])
    environment.sync_tools()


def execute(environment: Any, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the package's answers to the calls of one message."""
    from tau2.data_model.message import ToolCall

    answers = [environment.get_response(ToolCall(**call)) for call in calls]
    environment.sync_tools()
    return [{"content": answer.content, "error": answer.error} for answer in answers]


def warm_up(domain: Domain) -> None:
    """Play a little in the zygote: CPython specialises code after a few runs, and in a fork that would copy pages."""
    for _ in range(_ROUNDS):
        environment = domain.environment(solo_mode=domain.solo)
        begin(environment, {"initialization_actions": []})
        execute(environment, [{"id": "", "name": name, "arguments": given} for name, given in _WARM_UP[domain.name]])


class Engine(Forker):
    """The forker of judges. Reports on `control` when it is ready."""

    def __init__(self, control: int, domain: Domain, limits: dict[str, Any]) -> None:
        super().__init__(socket.socket(fileno=control))
        rows = json.loads((domain.folder / "tasks.json").read_text(encoding="utf-8"))
        splits = json.loads((domain.folder / "split_tasks.json").read_text(encoding="utf-8"))
        self._judge = Judge(domain, {row["id"]: row for row in rows}, splits)
        self._jail = Jail(limits["confinement"], limits["judge_memory_bytes"], limits["judge_cpu_seconds"])
        self.ready()

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Become a judge that serves the only descriptor."""
        self._jail.shut(descriptors[0], parent)
        while True:
            answer = self._judge.answer(frames.receive(descriptors[0]))
            frames.send(descriptors[0], {**answer, "cpu_seconds": time.process_time()})


def main(control_descriptor: int, limits: dict[str, Any]) -> None:
    """Serve until the control socket closes. `limits` holds PoolLimits' fields, "confinement", "domain" and "solo"."""
    domain = Domain(limits["domain"], solo=limits["solo"])
    warm_up(domain)
    os.chdir("/")
    os.environ.clear()
    os.environ["TZ"] = "UTC"
    zygote = Zygote(socket.socket(fileno=control_descriptor), domain, limits)
    zygote.ready(warning=zygote.jail.warning)
    zygote.serve()


class Zygote(Forker):
    """The forker of players and the engine; the package's docstring shows the tree of processes."""

    def __init__(self, control: socket.socket, domain: Domain, limits: dict[str, Any]) -> None:
        super().__init__(control)
        self._domain, self._limits = domain, limits
        self._environment = domain.environment(solo_mode=domain.solo)
        self.jail = Jail(limits["confinement"], limits["player_memory_bytes"], limits["player_cpu_seconds"])

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Become a player on the only descriptor, or the engine that serves it."""
        if request["fork"] == "player":
            channel = Channel(descriptors[0], self._limits["message_bytes"])
            channel.send({"ready": self.jail.shut(descriptors[0], parent)})
            serve_player(channel, self._environment)
        else:
            self.die_with(parent)
            keep_only(descriptors)
            Engine(descriptors[0], self._domain, self._limits).serve()
