"""Demonstrations on tasks that no split holds back: procedures, played call by call in the package's environment."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from tasks.core.interfaces.world import Episode, Message, Task
from tasks.core.seeding import derive_seed
from tasks.core.tool_calls import call_text
from tasks.core.worlds.tau2.demonstrations.rules import (
    CUSTOMER,
    HAND_OVER,
    Calls,
    Look,
    Sign,
    has_ended,
    is_locked,
    is_suspended,
    overdue_bill,
    paying,
    plain,
    procedure_for,
)
from tasks.core.worlds.tau2.tasks import kind
from tasks.core.worlds.tau2.world import Tau2World


@dataclass(frozen=True)
class Way:
    """Probabilities of looking and of acting blindly; by the rest, of neither."""

    looks: float
    acts_blindly: float


_CAREFUL = Way(1, 0)
_WAYS = {
    "sim": Way(0.85, 0.05), "network": Way(0.9, 0.05), "line": Way(0.45, 0.1), "preference": Way(0.85, 0.1),
    "apn": Way(0.85, 0.05), "saver": Way(0.35, 0.55), "vpn": Way(0.4, 0.05), "usage": Way(0.8, 0.15),
    "calling": Way(0.35, 0.1), "permissions": Way(0.4, 0.05),
}  # fmt: skip


@dataclass(frozen=True)
class Habits:
    """Probabilities; all others than those of `ways` are of a mistake."""

    ways: Mapping[str, Way] = field(default_factory=dict)
    """By the name of a look; a look that is not named is always taken."""
    toggles_twice: float = 0.0
    """Per toggle."""
    forgets_second: float = 0.0
    """Per sign after a look's first: overlook it."""
    forgets_reboot: float = 0.0
    stops_early: float = 0.0
    """Per look: call done."""
    hands_over_early: float = 0.0
    """Per look: hand over and call done."""
    goes_on: float = 0.0
    """Go on where only a human can help, or where a SIM card was re-seated not look at it again."""
    forgets_to_pay: float = 0.0
    forgets_result: float = 0.0
    """Not look at the result at the end."""

    def way(self, look: str) -> Way:
        """Return how this agent goes about a look."""
        return self.ways.get(look, _CAREFUL)


PERFECT = Habits()
IMPERFECT = Habits(
    ways=_WAYS,
    toggles_twice=0.05,
    forgets_second=0.1,
    forgets_reboot=0.1,
    stops_early=0.01,
    hands_over_early=0.01,
    goes_on=0.65,
    forgets_to_pay=0.6,
    forgets_result=0.5,
)
"""Some of them are what the agent mostly does, so that they show at a low temperature too."""


_BLINDLY = {"sim": plain("reseat_sim_card"), "network": plain("toggle_airplane_mode")}
"""The deeds of an agent that does not look, where it is not what all signs together ask for."""


class Ends(Exception):  # noqa: N818
    """The agent has said all that it says."""


class Demonstrator:
    """Plays one episode; `messages` is the conversation so far.

    Looks in the order of the ticket's procedure and does what helps, as its habits have it, then calls `done`.
    """

    def __init__(self, episode: Episode, ticket: str, habits: Habits, random: Random) -> None:
        self._episode, self._ticket, self._habits, self._random = episode, ticket, habits, random
        self.messages: list[Message] = list(episode.prompt)

    def play(self) -> None:
        """Play to the end."""
        procedure = procedure_for(self._ticket)
        try:
            for look in procedure.looks:
                self._go_about(look)
            if not self._happens(self._habits.forgets_result):
                self._call(procedure.last)
        except Ends:
            pass
        self._call(plain("done"))

    def _go_about(self, look: Look) -> None:
        if self._happens(self._habits.stops_early):
            raise Ends
        if self._happens(self._habits.hands_over_early):
            self._hand_over()
        way, drawn = self._habits.way(look.name), self._random.random()
        if drawn < way.looks:
            self._look(look)
        elif drawn < way.looks + way.acts_blindly:
            self._act(_BLINDLY.get(look.name) or look.signs[0].helps)

    def _look(self, look: Look) -> None:
        answer = self._call(look.check)
        self._consider_human(look, answer)
        for sign in self._seen(look, answer):
            self._act(sign.helps)
            if look.name == "sim" and not self._happens(self._habits.goes_on):
                self._consider_human(look, self._call(look.check))

    def _seen(self, look: Look, answer: str) -> Iterator[Sign]:
        shown = [sign for sign in look.signs if sign.shown(answer, self._ticket)]
        for number, sign in enumerate(shown):
            if number == 0 or not self._happens(self._habits.forgets_second):
                yield sign

    def _consider_human(self, look: Look, answer: str) -> None:
        """Hand over what no tool helps with, and pay what is overdue."""
        if look.name == "sim" and is_locked(answer) and not self._happens(self._habits.goes_on):
            self._hand_over()
        if look.name == "line" and is_suspended(answer):
            if has_ended(answer):
                if not self._happens(self._habits.goes_on):
                    self._hand_over()
            elif not self._happens(self._habits.forgets_to_pay):
                self._call(paying(overdue_bill(self._call((("get_bills_for_customer", CUSTOMER),)))))

    def _hand_over(self) -> None:
        self._call(HAND_OVER)
        raise Ends

    def _act(self, calls: Calls) -> None:
        if calls[-1][0] == "reboot_device" and self._happens(self._habits.forgets_reboot):
            calls = calls[:-1]
        self._call(calls)
        if calls[0][0].startswith("toggle") and self._happens(self._habits.toggles_twice):
            self._call(calls)

    def _call(self, calls: Calls) -> str:
        """Take a turn for each call; return the last answer."""
        answer = ""
        for call in calls:
            text = call_text([call], "json")
            observation = self._episode.step(text)
            answer = observation.text
            self.messages.append({"role": "assistant", "content": text})
            if not observation.done:
                self.messages.append({"role": "user", "content": answer + observation.ending})
        return answer

    def _happens(self, probability: float) -> bool:
        return self._random.random() < probability


MOST_DIFFICULT = 2
"""Tasks of six faults and more are test_challenge's, and are never demonstrated."""


@dataclass(frozen=True)
class Demonstration:
    """A played conversation."""

    task_id: str
    imperfect: bool
    messages: list[Message]
    success: bool


def demonstrated_tasks(world: Tau2World) -> list[Task]:
    """Return the tasks of train that may be demonstrated."""
    return [task for task in world.tasks("train") if task.difficulty <= MOST_DIFFICULT]


def play_demonstrations(world: Tau2World, seed: int, count: int, *, imperfect: bool) -> Iterator[Demonstration]:
    """Yield `count` demonstrations: kinds of tickets in turn, and a task of the kind by chance.

    The kinds have equal shares, though 9 in 10 tasks of `full` are about messages.
    """
    tasks = demonstrated_tasks(world)
    kinds: dict[str, Sequence[Task]] = {
        name: [task for task in tasks if kind(task.task_id) == name]
        for name in sorted({kind(t.task_id) for t in tasks})
    }
    habits, names = (IMPERFECT if imperfect else PERFECT), list(kinds)
    for number in range(count):
        random = Random(derive_seed(seed, "tau2 demonstration", "imperfect" if imperfect else "perfect", number))
        task = random.choice(kinds[names[number % len(names)]])
        episode = world.open(task.task_id, 0)
        try:
            demonstrator = Demonstrator(episode, task.instruction, habits, random)
            demonstrator.play()
            yield Demonstration(task.task_id, imperfect, demonstrator.messages, episode.evaluate().success)
        finally:
            episode.close()
