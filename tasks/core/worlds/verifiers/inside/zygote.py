"""The zygote: loads the environment and its tasks, then forks players. Started by the pool."""

import io
import logging
import os
import random
import socket
import sys
from contextlib import suppress
from typing import Any

from tasks.core.confinement.inside.channel import Channel
from tasks.core.confinement.inside.forking import Forker
from tasks.core.confinement.inside.frames import send
from tasks.core.confinement.inside.jail import Jail
from tasks.core.worlds.verifiers.inside.environment import Environment, Refused, content_digest
from tasks.core.worlds.verifiers.inside.event_loop import run
from tasks.core.worlds.verifiers.inside.playing import played
from tasks.core.worlds.verifiers.inside.tools import UnusableToolError

_WARM_TURNS = 2


def main(control_descriptor: int, settings: dict[str, Any]) -> None:
    """Serve until the control socket closes. `settings`: what the pool says, see there."""
    logging.disable(logging.CRITICAL)
    control = socket.socket(fileno=control_descriptor)
    if settings["folder"]:
        sys.path.insert(0, settings["folder"])
    random.seed(0)
    try:
        environments = [_loaded(settings, stream) for stream in settings["streams"]]
        listed = [each.listed(settings["solution"]) for each in environments] if settings["list"] else []
        for each in environments:
            _warm_up(each)
    except Refused as refusal:
        send(control.fileno(), {"ready": True, "refused": str(refusal)})
        return
    zygote = Zygote(control, settings, environments)
    zygote.ready(warning=zygote.jail.warning, listed=listed)
    zygote.serve()


def _loaded(settings: dict[str, Any], stream: dict[str, Any]) -> Environment:
    try:
        return Environment(settings["environment"], stream["settings"], stream["count"], settings["max_turns"])
    except Refused:
        raise
    except Exception as error:  # whatever an author's module raises, or pydantic on its settings
        raise Refused(f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]) from None


def _warm_up(environment: Environment) -> None:
    """Play a little before anything is confined: later nothing can be imported or read.

    Raises Refused for a tool that no policy can be told of. Else the outcome means nothing.
    """
    answers = iter([{"text": "", "calls": []}] * _WARM_TURNS)
    outcome: dict[str, Any] = {}
    with suppress(Exception):
        outcome = run(played(environment, environment.tasks[0], lambda _: next(answers, {"end": True})))
    if outcome.get("error") == UnusableToolError.__name__:
        raise Refused(outcome["fault"])


class Zygote(Forker):
    """The forker of players."""

    def __init__(self, control: socket.socket, settings: dict[str, Any], environments: list[Environment]) -> None:
        super().__init__(control)
        self._settings, self._environments = settings, environments
        self.jail = Jail(settings["confinement"], settings["player_memory_bytes"], settings["player_cpu_seconds"])

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Become a player on the only descriptor."""
        channel = Channel(descriptors[0], self._settings["message_bytes"])
        channel.send({"ready": self.jail.shut(descriptors[0], parent)})
        sys.stdout = sys.stderr = _Nowhere()
        _play(channel, self._environments)


def _play(channel: Channel, environments: list[Environment]) -> None:
    """Play the episode that the channel opens, and stay for its end."""
    opened = channel.receive()
    _same_numbers(opened["seed"])
    environment = environments[opened["stream"]]
    task = environment.tasks[opened["row"]] if opened["row"] < len(environment.tasks) else None
    if task is None or content_digest(task) != opened["content"]:
        channel.send(
            {"fault": f"row {opened['row']} of its dataset is not the one of data/world: prepare the world anew"}
        )
        return

    def ask(seen: dict[str, Any]) -> dict[str, Any]:
        channel.send({"seen": seen})
        return channel.receive()

    try:
        outcome = run(played(environment, task, ask))
    except Exception as error:
        outcome = {"fault": f"{type(error).__name__}: {error}"[:1000]}
    channel.send(outcome if "fault" in outcome else {"over": outcome})


def _same_numbers(seed: int) -> None:
    """Let everything that draws follow from the episode's seed, also what asks the system for random bytes."""
    random.seed(seed)
    drawn = random.Random(seed)
    os.urandom = random._urandom = drawn.randbytes  # type: ignore[attr-defined]
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(seed % 2**32)


class _Nowhere(io.TextIOBase):
    """A place for what an environment prints."""

    def write(self, text: str) -> int:
        return len(text)
