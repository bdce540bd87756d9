"""How an authored task is solved: its oracle, cut into turns. Read by the trusted parent only."""

import ast
from pathlib import Path

from tasks.core.records.files import ArtifactError
from tasks.core.worlds.appworld.root import layout


def demonstration(root: Path, most_turns: int | None, task_id: str) -> list[str]:
    """The oracle's top-level statements as at most `most_turns` code blocks, then its completing statement as one more.

    None: a block for each statement. Raises ArtifactError when the task's oracle is missing or no function `solution`.
    """
    path = layout.oracle(root, task_id)
    try:
        source = path.read_text(encoding="utf-8")
        (solution,) = (
            one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef) and one.name == "solution"
        )
    except FileNotFoundError:
        raise ArtifactError(f"{path}: missing; this root has no oracle for task {task_id}") from None
    except (SyntaxError, ValueError):
        raise ArtifactError(f"{path}: expected one function named solution") from None
    *work, completion = [ast.unparse(statement) for statement in solution.body]
    size = 1 if most_turns is None else max(1, -(-len(work) // most_turns))
    blocks = ["\n".join(work[begin : begin + size]) for begin in range(0, len(work), size)]
    return [f"```python\n{block}\n```" for block in [*blocks, completion]]
