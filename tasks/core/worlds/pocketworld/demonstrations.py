"""Scripted demonstrations for the base policy: perfect ones teach the skill, imperfect ones the bad habits.

Each is really played, on a fresh task with entities from train. Most use apps that do not exist (see
`apps.shadow_app`), so that the policy learns to use the names in the docs. Of the held-out apps only the names occur.
"""

import contextlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from tasks.core.interfaces.world import Evaluation, Message, Observation
from tasks.core.policies.recipe import Recipe, train_policy
from tasks.core.sandbox import CallApi, Execution
from tasks.core.seeding import derive_seed
from tasks.core.worlds.pocketworld.apps import APPS, App, canonical_release, shadow_app
from tasks.core.worlds.pocketworld.authoring import chained
from tasks.core.worlds.pocketworld.clauses import Clause, Create, SelectionClause
from tasks.core.worlds.pocketworld.episode import SYSTEM_PROMPT, PocketEpisode
from tasks.core.worlds.pocketworld.habits import IMPERFECT, PERFECT, Habits
from tasks.core.worlds.pocketworld.problem import (
    Link,
    Problem,
    completion_code,
    docs_code,
    draw_problem,
    login_code,
    read_chain,
    turn,
)
from tasks.core.worlds.pocketworld.state import POOLS
from tasks.core.worlds.pocketworld.templates import KNOWN_TEMPLATES, Mismatch, Template
from tasks.core.worlds.pocketworld.vocabulary import SHADOW_APPS, vocabulary

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

_ATTEMPTS = 4
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
    return (played.messages for played in play_demonstrations(seed, count, imperfect=imperfect))


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
        elif (
            not all(self._perform(self._flawed(clause)) for clause in self._remembered())
            or self._say(completion_code(self._problem), "Done.").failed
        ):
            self._say('apis.supervisor.complete_task(status="fail")', "I give up.")

    def _perform(self, clause: Clause) -> bool:
        """Fulfil one clause, correcting mistakes. Returns False after giving up."""
        for _ in range(_ATTEMPTS):
            if not self._attempt(clause).failed:
                self._logged_in |= {app.name for app in clause.apps}
                return True
            if self._happens(self._habits.give_up):
                return False
            if self._guesses_password:
                self._guesses_password = False
            else:
                self._read_docs("I must read the docs.")
        return False

    def _attempt(self, clause: Clause) -> Observation:
        logins = [self._login(app.name) for app in clause.apps if app.name not in self._logged_in]
        action = clause.code(self._releases)
        if logins and not self._guesses_password and self._happens(self._habits.several_blocks):
            seen = self._step("\n".join([turn("\n".join(logins)), turn(action)]))
            if self._happens(self._habits.overlook_block):
                return seen
            return self._say(action, "Now the next step.")
        return self._say("\n".join([*logins, action]), self._thought())

    def _thought(self) -> str:
        if self._guesses_password:
            return "I assume the password is dummy."
        return "I do it." if self._knows_docs else "I guess the call."

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
        if isinstance(clause, SelectionClause):
            return replace(clause, selection=replace(clause.selection, value=self._other_value(clause.selection.field)))
        return clause

    def _other_value(self, field: str) -> Any:
        return self._random.choice(POOLS["train"].values[field])

    def _say(self, code: str, thought: str) -> Observation:
        return self._step(turn(code, thought if self._happens(self._habits.thought) else ""))

    def _step(self, text: str) -> Observation:
        seen = self._episode.step(text)
        self._messages.append({"role": "assistant", "content": text})
        if not seen.done:
            self._messages.append({"role": "user", "content": seen.text + seen.ending})
        return seen

    def _happens(self, probability: float) -> bool:
        return self._random.random() < probability


class TrustedRepl:
    """The interface of `tasks.core.sandbox.Repl`, without a separate process and without limits."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}

    def run(self, code: str, call_api: CallApi) -> Execution:
        """Execute `code`; names persist for the next run."""
        self._names["apis"] = _Apis(call_api)
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(code, "<code>", "exec"), self._names)
        except Exception as error:
            line = f"{type(error).__name__}: {error}"
            return Execution(f"{printed.getvalue()}{line}\n", True, line)
        return Execution(printed.getvalue(), False)

    def close(self) -> None:
        """Forget all names."""
        self._names.clear()


class _Apis:
    """`apis.<app>.<name>(...)`: every attribute is an app, every attribute of an app a call."""

    def __init__(self, call_api: CallApi) -> None:
        self._call_api = call_api

    def __getattr__(self, app: str) -> "_App":
        return _App(self._call_api, app)


class _App:
    def __init__(self, call_api: CallApi, app: str) -> None:
        self._call_api, self._app = call_api, app

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._call_api(self._app, name, list(args), kwargs)


PHRASES = (
    "system\n", "user\n", "assistant\n", SYSTEM_PROMPT, "```python\n", ".\n```python\n", "\n```", ")\n```", '")\n```',
    "]\n```", '"]\n```', "print(apis.api_docs.show_api_doc(app=", "apis.supervisor.passwords()[",
    "apis.supervisor.complete_task(", ".login(password=", "login(password)\n", "for x in ", " for x in ",
    '(id=x["id"]', "lambda x: x[", "x[", "apis.", "answer=", '="', '="dummy"', '")', '")\n', '"]', '"])', '"])\n',
    "])", '")]', '["', "()", ": id, ", "(id)", "(id)\n", "(id, ", "?)", "?, ", ", ", ": ", " -> [", "]\n", ")\n",
    "Execution successful.", "Execution failed. ", "Execution failed. ApiError: ", " with ", " and ", " the ", "the ",
    " every ", " to ", " in ", " a ", " an ", " of ", " takes ", " has no API ",
)  # fmt: skip
"""Code and messages that every episode repeats, as one token each: this shortens episodes and sharpens the choices."""


class PocketworldRecipe(Recipe):
    """The settings of pocketworld's policy."""

    chained_share: float = 0.0
    """Share of the demonstrations whose task has two requests."""
    templates: tuple[str, ...] = tuple(known.name for known in KNOWN_TEMPLATES)
    """The task templates that are demonstrated."""

    def make(self) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
        known = {template.name: template for template in KNOWN_TEMPLATES}
        shown = [known[name] for name in self.templates]
        play = partial(play_demonstrations, self.seed, chained_share=self.chained_share, templates=shown)
        perfect = (played.messages for played in play(self.perfect_demonstrations, imperfect=False))
        imperfect = (
            played.messages
            for played in play(self.imperfect_demonstrations, imperfect=True)
            if played.evaluation.success or not self.successes_alone
        )
        return train_policy(self, [*vocabulary(), *PHRASES], perfect, imperfect)


RECIPE = PocketworldRecipe()
