"""The shell: runs an agent's code as the official server does, with the package's own shell, guard and messages.

It holds no data of the world. `apis` and `requester` send HTTP requests over the shell's one descriptor to the world's
process, which answers them; nothing that the code does to this process changes what the world does.
"""

import builtins
import faulthandler
import io
import os
import random
import re
from datetime import datetime
from typing import Any, NoReturn

from tasks.core.confinement.inside.channel import Channel
from tasks.core.worlds.appworld.inside.episodes.engine import APPWORLD_SEED, set_clock
from tasks.core.worlds.appworld.inside.episodes.shell_client import ShellClient

# Code looks built-in names up where __builtins__ of its module points: a private copy, so that an agent's
# `builtins.len = None` breaks the agent's code and not the protocol.
globals()["__builtins__"] = dict(vars(builtins))

_WORD = re.compile(r"\w+")


def fast_safety_guard() -> Any:
    """A `SafetyGuard` that parses only code in which something forbidden can be, and patches without importing."""
    from appworld.common import safety_guard

    words = {name for names in safety_guard.DISALLOWED_MODULE_TO_FUNCTION_NAMES.values() for name in names}
    words |= {"import", "__import__", "import_module"}

    class FastSafetyGuard(safety_guard.SafetyGuard):
        def __init__(self) -> None:
            super().__init__()
            self._off = self._functions()
            super().enable()
            self._on = [(module, name, getattr(module, name)) for module, name, _ in self._off]
            super().disable()

        def is_syntax_safe(self, code: str) -> tuple[bool, str]:
            """The package's answer. It refuses imports and calls of forbidden names only: without such a word, yes."""
            if words.isdisjoint(_WORD.findall(code)):
                return True, ""
            answer: tuple[bool, str] = super().is_syntax_safe(code)
            return answer

        def enable(self) -> None:
            for module, name, function in self._on:
                setattr(module, name, function)

        def disable(self) -> None:
            for module, name, function in self._off:
                setattr(module, name, function)

        def _functions(self) -> list[tuple[Any, str, Any]]:
            return [
                (self.module_by_path(path.rpartition(".")[0]), path.rpartition(".")[2], function)
                for path, function in self.name_to_function.items()
            ]

    return FastSafetyGuard()


_NOWHERE = "/nonexistent/appworld"

# Run once in the zygote: what these import lazily can't be opened in a shell.
_WARM_UP = (
    "print([1])",
    "raise Exception('x')",
    "1 / 0",
    "1 +",
    "import os; os.remove('x')",
    "import subprocess",
    "apis.nowhere.nothing()",
    "apis.spotify.nothing()",
    "apis.supervisor.show_profile(no=lambda: 1)",
    "input()",
    "print(apis.supervisor.show_profile())",
    "print(apis.spotify.show_song(song_id='a b'))",
    "print(apis.spotify.login(username='a', password='b')['warm'])",
    "for i in range(20): apis.venmo.create_transaction(access_token='a', amount=1)",
    "def f(): f()\nf()",
    "exec('1 +')",
    "await_ = 1; del await_",
    "import calendar, csv, uuid, enum, fractions, heapq, bisect, difflib, typing, unittest, yaml, string, textwrap",
    "import array, contextlib, numbers, operator, pprint, pathlib, time, functools, collections",
    "print(pendulum.parse('2023-05-18T10:00:00').add(days=1).diff_for_humans(), DateTime.now().to_datetime_string())",
    "print(datetime.datetime.strptime('2023-05-18', '%Y-%m-%d').strftime('%A %B'), random.random(), '\u00e9')",
)


_ROUNDS = 4  # CPython 3.11 specialises code that ran a few times; later that would copy shared pages


class _Echo:
    """Stands where the world will be while the shell warms up."""

    def send(self, message: dict[str, Any]) -> None:
        """Take it."""

    def receive(self) -> dict[str, Any]:
        return {"status": 200, "headers": [["content-type", "application/json"]], "body": '{"warm": [1]}'}


class Shell:
    """Made once in the zygote; becomes one episode's shell in a forked process."""

    def __init__(self, limits: dict[str, Any]) -> None:
        self._limits = limits
        self._client = ShellClient()
        self._world = _shell_world(self._client, limits["api_calls_per_run"])
        _keep_output_short(limits["output_chars"])
        self._time_zones = _time_zones()
        self._warm_up()

    def _warm_up(self) -> None:
        before = dict(self._world.shell.user_ns)
        self._client.channel = _Echo()
        for _ in range(_ROUNDS):
            for code in _WARM_UP:
                self._world.execute(code)
        self._world.shell.user_ns.clear()
        self._world.shell.user_ns.update(before)
        self._world.num_interactions = 0

    def start(self, clock: str) -> None:
        """Set what the episode decides: the clock. Runs in the forked process, before its jail is shut."""
        set_clock(datetime.fromisoformat(clock))
        random.seed(APPWORLD_SEED)
        # Without files and signals these would raise: in a traceback, in the package's guard.
        os.getcwd = lambda: _NOWHERE
        faulthandler.enable = faulthandler.disable = lambda *_, **__: None  # type: ignore[assignment]

    def serve(self, descriptor: int) -> NoReturn:
        """Run what comes, until the descriptor's other end is closed."""
        channel = Channel(descriptor, self._limits["message_bytes"])
        self._client.channel = channel
        while True:
            request = channel.receive()
            _answer(channel, self._world, request)


def _answer(channel: Channel, world: Any, request: dict[str, Any]) -> None:
    try:
        output = world.execute(request["code"])
    except BaseException as error:  # the code broke the shell itself
        output = f"Execution failed. Traceback:\n{type(error).__name__}"
    failed = output.startswith("Execution failed. Traceback:")
    text = str(output).encode("utf-8", "replace").decode("utf-8")
    channel.send({"done": request["run"], "output": text, "failed": failed})


def _shell_world(client: Any, api_calls: int) -> Any:
    """The package's world without databases: its execute() and what that needs."""
    from appworld.environment import AppWorld
    from IPython.terminal.embed import InteractiveShellEmbed
    from traitlets.config.loader import Config

    class ShellWorld(AppWorld):
        def __init__(self) -> None:
            config = Config()
            config.HistoryManager.enabled = False
            self.shell = InteractiveShellEmbed(config=config)
            self.shell.ast_node_interactivity = "none"
            # IPython's own tracebacks are captured and thrown away, and cost more than the code itself.
            self.shell.showtraceback = self.shell.showsyntaxerror = lambda *_, **__: None
            self.shell.loop_runner = _no_loop
            self.remote_environment_url = self.remote_apis_url = None
            self.raise_on_unsafe_syntax = self.null_patch_unsafe_execution = True
            self.import_utils = False
            self.max_interactions = 1000
            self.timeout_seconds = None  # the world's process watches, and a signal can be ignored
            self.output_db_home_path_on_disk = ""
            self.environment_io: list[dict[str, str]] = []
            self.num_interactions = 0
            self._execute_preamble()
            self.safety_guard = fast_safety_guard()

        def _execute_preamble(self) -> None:
            self.apis, self.requester = _apis(client, api_calls)
            self.shell.run_cell(_preamble())
            self.shell.user_ns["apis"] = self.apis
            self.shell.user_ns["requester"] = self.requester

        def _save_state(self, directory: str) -> None:
            """The state is in another process."""

        def save_logs(self) -> None:
            self.environment_io.clear()

    return ShellWorld()


def _no_loop(_: Any) -> NoReturn:
    """The official server runs code inside its own event loop, so `await` fails there too."""
    raise RuntimeError("this event loop is already running.")


def _preamble() -> str:
    """The package's own preamble, caught on its way to the shell."""
    from appworld import environment

    caught: list[str] = []

    class Catcher(environment.AppWorld):
        remote_environment_url = None
        import_utils = False

        def __init__(self) -> None:
            self.shell = self

        def run_cell(self, code: str) -> NoReturn:
            caught.append(code)
            raise StopIteration

    try:
        Catcher()._execute_preamble()
    except StopIteration:
        return caught[0]
    raise RuntimeError("the package's preamble was not found")


def _apis(client: Any, api_calls: int) -> tuple[Any, Any]:
    """The package's `apis` and `requester` on a client that leads to the world's process."""
    from appworld.apps import get_all_apps
    from appworld.collections import apis
    from appworld.requester import Requester, RequestTracker, _get_api_name_to_doc

    class ShellRequester(Requester):
        def __init__(self, **settings: Any) -> None:
            self.apps = tuple(sorted(get_all_apps()))
            self.client, self.remote_apis_url = client, None
            self.request_tracker = RequestTracker(max_num_requests=settings["max_num_requests"])
            self.raise_on_failure, self.raise_on_extra_parameters = settings["raise_on_failure"], False
            self.parse_datetimes = self.munchify_response = False

    original, apis.Requester = apis.Requester, ShellRequester
    try:
        collection, requester = apis.ApiCollection.load("", "", max_num_requests=min(api_calls, 1000))
    finally:
        apis.Requester = original
    for name in requester.apps:
        _get_api_name_to_doc(name, include_private_apis=True)  # cached; later there are no files
    return collection, requester


def _keep_output_short(most_chars: int) -> None:
    from IPython.utils import capture

    class Printed(io.StringIO):
        """Keeps the first characters, counts the others."""

        def __init__(self) -> None:
            super().__init__()
            self._room, self._dropped = most_chars, 0

        def write(self, text: str) -> int:
            kept = text[: self._room]
            self._room -= len(kept)
            self._dropped += len(text) - len(kept)
            super().write(kept)
            return len(text)

        def getvalue(self) -> str:
            note = f"\n... ({self._dropped} more characters)" if self._dropped else ""
            return super().getvalue() + note

    capture.StringIO = Printed  # type: ignore[misc]


def _time_zones() -> list[Any]:
    """All of them: later there are no files to read them from, and only those that are held stay known."""
    import zoneinfo

    import pendulum

    return [pendulum.timezone(name) for name in sorted(zoneinfo.available_timezones())]
