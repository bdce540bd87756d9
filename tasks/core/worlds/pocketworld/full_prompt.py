"""The prompt for a model that never saw pocketworld: what an agent must know, one worked example, the task's docs.

The embedded policies learn from demonstrations to read the docs; a pretrained model guesses calls instead. So the docs
of the task's apps stand in the prompt, and the example is of an app that the task does not need.
"""

from tasks.core.interfaces.world import Message
from tasks.core.worlds.pocketworld.apps import APPS
from tasks.core.worlds.pocketworld.problem import Problem, clause_code, completion_code, draw_problem, turn
from tasks.core.worlds.pocketworld.state import POOLS
from tasks.core.worlds.pocketworld.templates import TEMPLATES

RULES = """\
You solve tasks for a supervisor by writing Python. In each turn write one code block:
```python
...
```
It runs in a session whose variables stay, and you see what it prints. Call an app as apis.APP.NAME(field=value), with \
keyword arguments alone and exactly the names in its docs. Log in to an app before you use it, with \
password=apis.supervisor.passwords()["APP"]. Records are dicts with an "id". Change nothing that the task does not ask \
for. When the task is done, call apis.supervisor.complete_task(), or complete_task(answer=...) if it is a question."""
_EXAMPLE_TEMPLATE, _EXAMPLE_SEED = "update_one", 7


def full_opening(problem: Problem, worked: str) -> list[Message]:
    """Return the prompt of a task. `worked` is what the world says after a turn that printed nothing."""
    names = (name for name in APPS if name not in problem.apps)
    example = _example(next(names))
    return [
        {"role": "system", "content": RULES},
        {"role": "user", "content": _asked(example)},
        {"role": "assistant", "content": turn(clause_code(example, example.clauses[0]))},
        {"role": "user", "content": worked},
        {"role": "assistant", "content": turn(completion_code(example))},
        {"role": "user", "content": f"Right. The next task is another one.\n\n{_asked(problem)}"},
    ]


def _example(app: str) -> Problem:
    apps = (APPS[app],)
    return draw_problem([(TEMPLATES[_EXAMPLE_TEMPLATE], apps)], apps, POOLS["train"], _EXAMPLE_SEED)


def _asked(problem: Problem) -> str:
    docs = (f"Docs of {app}:\n" + "\n".join(problem.releases[app].docs().values()) for app in problem.apps)
    return "\n\n".join([*docs, f"Task: {problem.instruction}"])
