"""A task's solution: the oracle's turns, and the pieces of code for demonstrations."""

from collections.abc import Iterable

from tasks.core.worlds.pocketworld.problems.clauses import Clause
from tasks.core.worlds.pocketworld.problems.problem import Problem


def turn(code: str, thought: str = "") -> str:
    """Return an assistant turn: a thought line if there is a thought, then a code block."""
    block = f"```python\n{code}\n```"
    return f"{thought}\n{block}" if thought else block


def docs_code(apps: Iterable[str]) -> str:
    """Return code that prints the docs of each app."""
    return "\n".join(f'print(apis.api_docs.show_api_doc(app="{app}"))' for app in apps)


def login_code(app: str) -> str:
    """Return code that logs in with the password that the supervisor keeps."""
    return f'apis.{app}.login(password=apis.supervisor.passwords()["{app}"])'


def clause_code(problem: Problem, clause: Clause, logged_in: Iterable[str] = ()) -> str:
    """Return code that logs in where still needed, then does what the clause asks."""
    known = set(logged_in)
    logins = [login_code(app.name) for app in clause.apps if app.name not in known]
    return "\n".join([*logins, clause.code(problem.releases)])


def completion_code(problem: Problem) -> str:
    """Return code that ends the task; a question's answer is in the variable `answer`."""
    return f"apis.supervisor.complete_task({'' if problem.answer is None else 'answer=answer'})"


def oracle(problem: Problem) -> list[str]:
    """Return the turns that solve a task: read the docs, one turn per clause, complete."""
    turns = [docs_code(problem.apps)]
    logged_in: set[str] = set()
    for clause in problem.clauses:
        turns.append(clause_code(problem, clause, logged_in))
        logged_in |= {app.name for app in clause.apps}
    return [turn(code) for code in [*turns, completion_code(problem)]]
