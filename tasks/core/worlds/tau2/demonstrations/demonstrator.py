"""One demonstration: a ticket's procedure, played call by call in the package's environment."""

from collections.abc import Iterator
from random import Random

from tasks.core.interfaces.world import Episode, Message
from tasks.core.tool_calls import call_text
from tasks.core.worlds.tau2.demonstrations.habits import Habits
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
