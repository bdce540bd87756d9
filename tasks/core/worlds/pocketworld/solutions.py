"""A task's solution: the turns of the oracle, and the pieces of code that demonstrations are made of."""

from collections.abc import Iterable

from tasks.core.worlds.pocketworld.authoring.clauses import Clause
from tasks.core.worlds.pocketworld.authoring.scenarios import Problem


def turn(code: str, thought: str = "") -> str:
    """An assistant turn: a thought line if there is one, then a code block."""
    block = f"```python\n{code}\n```"
    return f"{thought}\n{block}" if thought else block


def docs_code(apps: Iterable[str]) -> str:
    """Print the docs of each app."""
    return "\n".join(f'print(apis.api_docs.show_api_doc(app="{app}"))' for app in apps)


def login_code(app: str) -> str:
    """Log in with the password that the supervisor keeps."""
    return f'apis.{app}.login(password=apis.supervisor.passwords()["{app}"])'


def clause_code(problem: Problem, clause: Clause, logged_in: Iterable[str] = ()) -> str:
    """Log in where that is still needed, then do what the clause asks."""
    known = set(logged_in)
    logins = [login_code(app.name) for app in clause.apps if app.name not in known]
    return "\n".join([*logins, clause.code(problem.releases)])


def completion_code(problem: Problem) -> str:
    """End the task; a question's answer is in the variable `answer`."""
    return f"apis.supervisor.complete_task({'' if problem.answer is None else 'answer=answer'})"


def oracle(problem: Problem) -> list[str]:
    """The turns that solve a task: read the docs, one turn per clause, complete."""
    turns = [docs_code(problem.apps)]
    logged_in: set[str] = set()
    for clause in problem.clauses:
        turns.append(clause_code(problem, clause, logged_in))
        logged_in |= {app.name for app in clause.apps}
    return [turn(code) for code in [*turns, completion_code(problem)]]
