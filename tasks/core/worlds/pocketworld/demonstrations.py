"""Scripted demonstrations for the base policy: perfect ones teach the skill, imperfect ones the bad habits.

Each is really played, on a fresh task with entities from train. Most use apps that do not exist (see
`apps.shadow_app`), so that the policy learns to use the names in the docs. Of the held-out apps only the names occur.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tasks.core.interfaces.world import Evaluation, Message, Observation
from tasks.core.seeding import derive_seed
from tasks.core.worlds.pocketworld.authoring import chained
from tasks.core.worlds.pocketworld.episodes.episode import PocketEpisode
from tasks.core.worlds.pocketworld.episodes.trusted_repl import TrustedRepl
from tasks.core.worlds.pocketworld.habits import IMPERFECT, PERFECT, Habits
from tasks.core.worlds.pocketworld.problems.apps import APPS, App, canonical_release, shadow_app
from tasks.core.worlds.pocketworld.problems.clauses import (
    AskCount,
    AskField,
    AskTotal,
    Clause,
    Create,
    Delete,
    ForEach,
    Selection,
    Update,
)
from tasks.core.worlds.pocketworld.problems.problem import Link, Problem, draw_problem, read_chain
from tasks.core.worlds.pocketworld.problems.state import POOLS
from tasks.core.worlds.pocketworld.problems.templates import KNOWN_TEMPLATES, Mismatch, Template
from tasks.core.worlds.pocketworld.problems.vocabulary import SHADOW_APPS
from tasks.core.worlds.pocketworld.solutions import completion_code, docs_code, login_code, turn

SHADOW_SHARE = 0.6
"""Probability that apps of a task are replaced by apps that do not exist (never for phone)."""


@dataclass(frozen=True)
class Demonstration:
    """A played conversation with the verdict of the task's unit tests."""

    problem: Problem
    messages: list[Message]
    """System, user, then assistant and user in turn, ending with an assistant message."""
    evaluation: Evaluation


def demonstrations(seed: int, count: int, *, imperfect: bool) -> Iterator[list[Message]]:
    """Yield `count` conversations: system, user, then assistant and user in turn, ending with an assistant message.

    The same arguments give the same conversations.
    """
    for played in play_demonstrations(seed, count, imperfect=imperfect):
        yield played.messages


def play_demonstrations(
    seed: int,
    count: int,
    *,
    imperfect: bool,
    habits: Habits = IMPERFECT,
    shadow_share: float = SHADOW_SHARE,
    chained_share: float = 0.0,
    templates: Sequence[Template] = KNOWN_TEMPLATES,
) -> Iterator[Demonstration]:
    """Yield demonstrations, each with its verdict: to see how a mixture of habits scores before training on it.

    `habits` only affects imperfect demonstrations.
    """
    for number in range(count):
        random = Random(derive_seed(seed, "demonstration", "imperfect" if imperfect else "perfect", number))
        problem = _draw(random, shadow_share, chained_share, templates)
        yield _Demonstrator(problem, habits if imperfect else PERFECT, random).play()


def _draw(random: Random, shadow_share: float, chained_share: float, templates: Sequence[Template]) -> Problem:
    while True:
        template = random.choice(templates)
        names, app_names = template.name, random.choice(template.apps)
        if chained_share and random.random() < chained_share:
            names, app_names, _ = chained(template, app_names, 2, random)
        apps = tuple(APPS[name] for name in app_names)
        if "phone" not in app_names and random.random() < shadow_share:
            apps = _with_shadows(apps, random)
        try:
            world = tuple(dict.fromkeys(apps))
            return draw_problem(_links(names, app_names, apps), world, POOLS["train"], random.getrandbits(62))
        except Mismatch:
            continue


def _links(names: str, chain_apps: tuple[str, ...], apps: tuple[App, ...]) -> list[Link]:
    """Return the templates of a chain, each with the elements of `apps` that replace its own apps."""
    rest = iter(apps)
    return [(template, tuple(next(rest) for _ in taken)) for template, taken in read_chain(names, chain_apps)]


def _with_shadows(apps: tuple[App, ...], random: Random) -> tuple[App, ...]:
    """Replace one app, or several, by apps that do not exist."""
    replaced = random.sample(range(len(apps)), random.randint(1, len(apps)))
    names = random.sample(SHADOW_APPS, len(apps))
    return tuple(
        shadow_app(name, random) if index in replaced else app
        for index, (app, name) in enumerate(zip(apps, names, strict=True))
    )


class _Demonstrator:
    """A player of one problem with the given habits."""

    def __init__(self, problem: Problem, habits: Habits, random: Random) -> None:
        self._problem, self._habits, self._random = problem, habits, random
        self._episode = PocketEpisode(problem, TrustedRepl())
        self._messages: list[Message] = list(self._episode.prompt)
        self._releases = problem.releases
        self._logged_in: set[str] = set()
        self._guesses_password = self._happens(habits.guess_password)

    def play(self) -> Demonstration:
        """Play the whole conversation."""
        if self._happens(self._habits.skips(self._problem.apps[0])):
            self._releases = {name: canonical_release(r.app) for name, r in self._problem.releases.items()}
        else:
            self._read_docs("I read the docs.")
        self._end(early=self._happens(self._habits.finish_early))
        return Demonstration(self._problem, self._messages, self._episode.evaluate())

    def _end(self, early: bool) -> None:
        if early:
            answer = "" if self._problem.answer is None else f"answer={self._random.randint(1, 9)}"
            self._say(f"apis.supervisor.complete_task({answer})", "That should work.")
        elif not self._perform_all() or self._say(completion_code(self._problem), "Done.").failed:
            self._say('apis.supervisor.complete_task(status="fail")', "I give up.")

    def _perform_all(self) -> bool:
        return all(self._perform(self._flawed(clause)) for clause in self._remembered())

    def _perform(self, clause: Clause) -> bool:
        """Fulfil one clause, correcting mistakes. Returns False after giving up."""
        for _ in range(_ATTEMPTS):
            if not self._attempt(clause).failed:
                self._logged_in |= {app.name for app in clause.apps}
                return True
            if self._happens(self._habits.give_up):
                return False
            self._mend()
        return False

    def _attempt(self, clause: Clause) -> Observation:
        logins = [self._login(app.name) for app in clause.apps if app.name not in self._logged_in]
        action = clause.code(self._releases)
        if logins and not self._guesses_password and self._happens(self._habits.several_blocks):
            seen = self._say_blocks(["\n".join(logins), action])
            if self._happens(self._habits.overlook_block):
                return seen
            return self._say(action, "Now the next step.")
        return self._say("\n".join([*logins, action]), self._thought())

    def _thought(self) -> str:
        if self._guesses_password:
            return "I assume the password is dummy."
        return "I do it." if self._knows_docs else "I guess the call."

    def _mend(self) -> None:
        """Stop guessing what was guessed, after a failed turn."""
        if self._guesses_password:
            self._guesses_password = False
        else:
            self._read_docs("I must read the docs.")

    def _login(self, app: str) -> str:
        return f'apis.{app}.login(password="dummy")' if self._guesses_password else login_code(app)

    @property
    def _knows_docs(self) -> bool:
        return self._releases is self._problem.releases

    def _read_docs(self, thought: str) -> None:
        self._releases = self._problem.releases
        self._say(docs_code(self._problem.apps), thought)

    def _remembered(self) -> tuple[Clause, ...]:
        clauses = self._problem.clauses
        forgets = len(clauses) > 1 and self._happens(self._habits.forget_clause)
        return clauses[:-1] if forgets and self._problem.answer is None else clauses

    def _flawed(self, clause: Clause) -> Clause:
        """Return the clause as carried out: with a wrong value, or as requested."""
        if not self._happens(self._habits.wrong_filter):
            return clause
        if isinstance(clause, Create):
            field = self._random.choice(list(clause.values))
            return replace(clause, values={**clause.values, field: self._other_value(field)})
        if isinstance(clause, Delete | Update | ForEach | AskField | AskCount | AskTotal):
            return replace(clause, selection=self._other_selection(clause.selection))
        return clause

    def _other_selection(self, selection: Selection) -> Selection:
        return replace(selection, value=self._other_value(selection.field))

    def _other_value(self, field: str) -> Any:
        return self._random.choice(POOLS["train"].values[field])

    def _say(self, code: str, thought: str) -> Observation:
        return self._step(turn(code, thought if self._happens(self._habits.thought) else ""))

    def _say_blocks(self, codes: list[str]) -> Observation:
        return self._step("\n".join(turn(code) for code in codes))

    def _step(self, text: str) -> Observation:
        seen = self._episode.step(text)
        self._messages.append({"role": "assistant", "content": text})
        if not seen.done:
            self._messages.append({"role": "user", "content": seen.text + seen.ending})
        return seen

    def _happens(self, probability: float) -> bool:
        return self._random.random() < probability


_ATTEMPTS = 4
