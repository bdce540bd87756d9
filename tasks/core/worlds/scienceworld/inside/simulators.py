"""Many live simulators in one JVM, kept apart: each sees the global state that it would have alone.

The JVM has one random generator and one counter of object ids for all simulators; both are swapped around everything a
simulator does. `reset task`, which would let an agent earn the same progress twice, is removed from its parser.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaGateway

_FIRST_ACTION = "look around"
"""The action that the package's own `reset` plays before an agent's first action."""
_REFUSED = "reset task"
_SPLITS = {"train": "getVariationsTrain", "dev": "getVariationsDev", "test": "getVariationsTest"}


@dataclass
class _Simulator:
    """A live simulator and its part of the JVM's global state."""

    interface: Any
    random: Any
    ids: int = 0


class Simulators:
    """A server that answers requests, one at a time."""

    def __init__(self, gateway: JavaGateway) -> None:
        jvm = self._jvm = gateway.jvm
        self._random = self._singleton("scala.util.Random$")
        self._generator = self._field(jvm.java.lang.Class.forName("scala.util.Random"), "self")
        self._ids = self._singleton("util.UniqueIdentifier$")
        self._known_paths = self._singleton("scienceworld.goldagent.PathFinder$").precomputedExhaustivePaths()
        self._detach = gateway.detach
        self._live: dict[int, _Simulator] = {}
        self._opened = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request.

        Requests: {"load": [type, variation]}, {"step": n, "action": text}, {"close": n}, {"types": true} and {"solve":
        type, "variations": [...]}.
        """
        match request:
            case {"load": [task, variation]}:
                return self._load(task, variation)
            case {"step": number, "action": action}:
                return self._step(self._live[number], action)
            case {"close": number}:
                self._detach(self._live.pop(number).interface)
                return {}
            case {"types": True}:
                return {"variations": self._variations()}
            case {"solve": task, "variations": variations}:
                self._known_paths.clear()
                return {"solutions": [self._solution(task, variation) for variation in variations]}
        raise ValueError(f"no such request: {sorted(request)}")

    def _load(self, task: str, variation: int) -> dict[str, Any]:
        simulator = self._new()
        with self._in_its_state(simulator):
            error = simulator.interface.load(task, variation, "", False)
        if error:
            raise ValueError(error)
        self._refuse(simulator.interface.agentInterface().get())
        self._opened += 1
        self._live[self._opened] = simulator
        seen = self._step(simulator, _FIRST_ACTION)
        return {"episode": self._opened, "description": simulator.interface.getTaskDescription(), **seen}

    def _step(self, simulator: _Simulator, action: str) -> dict[str, Any]:
        interface = simulator.interface
        with self._in_its_state(simulator):
            text = interface.step(action)
        score, done, moves = interface.getScore(), interface.getCompleted(), interface.getNumMoves()
        return {"text": text, "score": score, "completed": done, "moves": moves}

    def _variations(self) -> dict[str, dict[str, list[int]]]:
        """Return the official variations of every type and split."""
        interface = self._new().interface
        variations = {}
        for task in list(interface.getTaskNames()):
            getattr(interface, "taskStr_$eq")(task)  # enough for the splits, whereas `load` takes a second
            variations[task] = {split: list(getattr(interface, name)()) for split, name in _SPLITS.items()}
        self._detach(interface)
        return variations

    def _solution(self, task: str, variation: int) -> dict[str, Any] | None:
        """Return the official solution, up to the action that completes the task, and its number of moves.

        Returns None if it does not complete the task, for example because of a wrong focus. The solution depends on the
        paths through the house that earlier solutions have found.
        """
        simulator = self._new()
        interface = simulator.interface
        with self._in_its_state(simulator):
            interface.load(task, variation, "", True)
        gold, description = list(interface.getGoldActionSequence()), interface.getTaskDescription()
        self._step(simulator, _FIRST_ACTION)
        steps = enumerate((self._step(simulator, action) for action in gold), 1)
        length, moves = next(((number, seen["moves"]) for number, seen in steps if seen["completed"]), (0, 0))
        self._detach(interface)
        return {"instruction": description, "gold": gold[:length], "moves": moves} if length else None

    def _new(self) -> _Simulator:
        return _Simulator(self._jvm.scienceworld.runtime.pythonapi.PythonInterface(), self._jvm.java.util.Random(0))

    @contextmanager
    def _in_its_state(self, simulator: _Simulator) -> Iterator[None]:
        self._generator.set(self._random, simulator.random)
        getattr(self._ids, "count_$eq")(simulator.ids)
        yield
        simulator.ids = self._ids.count()

    def _refuse(self, agent: Any) -> None:
        """Remove the refused action from the agent's parser, which has its own list and so must be rebuilt."""
        handler = agent.actionHandler()
        handler.actions().remove(_REFUSED)
        parser = self._jvm.scienceworld.input.InputParser(handler.getActions())
        self._field(agent.getClass(), "inputParser").set(agent, parser)

    def _singleton(self, name: str) -> Any:
        """Return a Scala object."""
        return self._jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)

    def _field(self, kind: Any, name: str) -> Any:
        field = kind.getDeclaredField(name)
        field.setAccessible(True)
        return field
