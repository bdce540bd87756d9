"""The agent's prompt: what a turn is, which apps there are, one worked example, the task.

Written for this project in the manner of ReAct (arXiv 2210.03629) as LOOP uses it (arXiv 2502.01600, appendix): think
in words, then one block of code, then read its output.
"""

from collections.abc import Mapping
from typing import Any, Literal

from tasks.core.code_blocks import TurnCode
from tasks.core.interfaces.world import Message

REMINDER = (
    "(Reminder: think first, then write one ```python block. Look an API up before you call it. When all is done, call "
    "apis.supervisor.complete_task, with answer=... only if the task asks for one.)"
)

NO_CODE = (
    "Nothing was executed: there was no code block in your turn. Write your code between ```python and ```, one block "
    "per turn. If the task is done, end it with apis.supervisor.complete_task()."
)

_FAILED = "Execution failed. Traceback:\n"
_MOST_ERROR_CHARS = 500

ONLY_FIRST = "Only the first of your {count} code blocks was executed."

_SYSTEM = """\
You are an assistant who does everyday tasks for your supervisor, fully on your own, by writing Python code.

Your code runs in a session that lasts for the whole task: variables stay, and you see what you print. Apps are called \
as apis.<app>.<api>(...), with keyword arguments. These apps exist:
{apps}

Find your way with three calls: apis.api_docs.show_app_descriptions(), \
apis.api_docs.show_api_descriptions(app_name=...) and apis.api_docs.show_api_doc(app_name=..., api_name=...).

Rules:
1. Each turn: a few words of thought, then exactly one ```python block. Keep blocks small, and read the output before \
you go on. Never guess what a call will answer.
2. Look up the document of an API before you first call it. Use no made-up values, neither in code nor in answers.
3. Most apps want an access token from their login API. User names are your supervisor's email address or phone \
number; passwords come from apis.supervisor.show_account_passwords().
4. Many APIs answer page by page: go through all pages.
5. Times and dates count from the session's clock (datetime.now()), not from today's.
6. "My friends", "my roommates" and so on are the relationships in the phone app's contacts.
7. Do what was asked and nothing else; nobody answers questions.
8. Call apis.supervisor.complete_task() when all is done. When the task asks for something, pass it as answer=..., as \
short as possible: a number or a name, not a sentence. If it can't be done, pass status="fail"."""

_TASK = """\
Your supervisor is {first_name} {last_name}, email {email}, phone number {phone_number}.

Task: {instruction}"""

_EXAMPLE_TASK = _TASK.format(
    first_name="Ada",
    last_name="Moreau",
    email="ada.moreau@gmail.com",
    phone_number="4155550137",
    instruction="How many songs are in my Spotify song library?",
)

_EXAMPLE: tuple[tuple[str, str, str], ...] = (
    (
        "I need the Spotify app. First I list its APIs, by name only.",
        "print([api['name'] for api in apis.api_docs.show_api_descriptions(app_name='spotify') "
        "if 'login' in api['name'] or 'library' in api['name']])",
        '["login", "show_song_library", "show_album_library", "show_playlist_library"]',
    ),
    (
        "show_song_library looks right. I read what it and the login take.",
        "for name in ('login', 'show_song_library'):\n"
        "    doc = apis.api_docs.show_api_doc(app_name='spotify', api_name=name)\n"
        "    print(name, [(p['name'], p['required']) for p in doc['parameters']])",
        "login [('username', True), ('password', True)]\n"
        "show_song_library [('access_token', True), ('page_index', False), ('page_limit', False)]",
    ),
    (
        "I log in with my supervisor's email address and Spotify password.",
        "passwords = {a['account_name']: a['password'] for a in apis.supervisor.show_account_passwords()}\n"
        "token = apis.spotify.login(username='ada.moreau@gmail.com', password=passwords['spotify'])['access_token']",
        "Execution successful.",
    ),
    (
        "The library comes in pages, so I go on until a page is empty.",
        "songs, page = [], 0\n"
        "while True:\n"
        "    more = apis.spotify.show_song_library(access_token=token, page_index=page, page_limit=20)\n"
        "    if not more:\n"
        "        break\n"
        "    songs += more\n"
        "    page += 1\n"
        "print(len(songs))",
        "53",
    ),
    (
        "There are 53 songs. The task asks for that number, so I complete it with the answer.",
        "apis.supervisor.complete_task(answer=53)",
        "Execution successful.",
    ),
)


class Prompt:
    """Text for one task's agent, before its first turn and after each."""

    def __init__(self, facts: Mapping[str, Any], reminder: Literal["rules", "task"]) -> None:
        """`facts`: the task's instruction, supervisor and app_descriptions (name -> description), from the engine.

        `reminder`: what every observation ends with. apple/ml-loop repeats what its prompt says after "solve the actual
        task:" (date, supervisor, instruction) in every one, after "As a reminder"; its rules are said once.
        """
        self._facts, self._kind = facts, reminder
        self._task = _TASK.format(instruction=facts["instruction"], **facts["supervisor"])

    def opening(self) -> list[Message]:
        """The messages before the agent's first turn."""
        listing = "\n".join(f"- {name}: {description}" for name, description in self._facts["app_descriptions"].items())
        return [
            {"role": "system", "content": _SYSTEM.format(apps=listing)},
            *self._example(),
            {"role": "user", "content": f"That task is done. Now the real one, in a fresh session.\n\n{self._task}"},
        ]

    def observed(self, output: str, code: TurnCode) -> tuple[str, str]:
        """The user message for an executed turn: what may be cut, and the ending, which stays whole."""
        return _observed(output, code, self._reminder(self._task))

    def _reminder(self, task: str) -> str:
        return REMINDER if self._kind == "rules" else f"(As a reminder: {task})"

    def _example(self) -> list[Message]:
        reminder = self._reminder(_EXAMPLE_TASK)
        messages: list[Message] = [{"role": "user", "content": f"First an example.\n\n{_EXAMPLE_TASK}"}]
        for thought, code, output in _EXAMPLE:
            messages.append({"role": "assistant", "content": f"{thought}\n```python\n{code}\n```"})
            seen = _observed(output, TurnCode(code, blocks=1, ran=1), reminder)
            messages.append({"role": "user", "content": "".join(seen)})
        return messages[:-1]


def _observed(output: str, code: TurnCode, reminder: str) -> tuple[str, str]:
    shown, error = _parted(output.rstrip())
    notes = [ONLY_FIRST.format(count=code.blocks)] if code.ran < code.blocks else []
    return f"Output:\n```\n{shown}", "\n".join([f"{error}\n```", *notes, reminder])


def _parted(output: str) -> tuple[str, str]:
    """The output, and the last line of a failure, which names the error; "" where that is long itself."""
    head, _, last = output.rpartition("\n")
    if not output.startswith(_FAILED) or len(last) > _MOST_ERROR_CHARS:
        return output, ""
    return head, f"\n{last}"
