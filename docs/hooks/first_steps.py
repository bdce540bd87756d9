"""Run docs/first_steps.ipynb in a fresh clone of HEAD, and keep its outputs.

python docs/hooks/first_steps.py

"""

import os
import subprocess
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = "docs/first_steps.ipynb"


def run_notebook() -> None:
    """Run the notebook in a clone, and keep what its cells say without the clone's place."""
    notebook = nbformat.read(ROOT / NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory(prefix="loopline_notebook") as folder:
        clone = Path(folder) / "loopline"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        client = NotebookClient(
            notebook,
            timeout=900,
            coalesce_streams=True,
            record_timing=False,
            resources={"metadata": {"path": clone / "docs"}},
        )
        client.execute(env={**os.environ, "PYTHONPATH": str(clone)})
    nbformat.write(nbformat.from_dict(placed(notebook, folder)), ROOT / NOTEBOOK)


def placed(node: object, folder: str) -> object:
    """Return a notebook's tree with paths that begin in the folder that the clone stood in."""
    if isinstance(node, str):
        return node.replace(f"{folder}/", "/home/you/")
    if isinstance(node, dict):
        return {name: placed(value, folder) for name, value in node.items()}
    return [placed(value, folder) for value in node] if isinstance(node, list) else node


if __name__ == "__main__":
    run_notebook()
