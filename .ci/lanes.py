"""Which lanes of tests have something new to say: those that reach a file that changed since they last passed.

    python .ci/lanes.py due LANE...       prints the lanes whose files differ from those of .ci/passed.json
    python .ci/lanes.py passed LANE...    notes that these lanes passed on the files as they are now

A lane's files: the modules that its tests import, directly or not, with the files beside them; the worlds and engines
that its tests name; all commands where a test runs one; and what every lane stands on (the environment, the profiles,
the base policies, this folder).
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from flows.dag.stage_code import closure
from tasks.core.records.files import digest
from tasks.core.records.run_manifest import digest_of_code

ROOT = Path(__file__).resolve().parents[1]
PASSED = ROOT / ".ci/passed.json"
COMMON = (".ci/*.*", ".ci/env", ".ci/run", "pyproject.toml", "*.yaml", "flows/profiles/*", "data/base_policies/**/*")
BY_PATH = {
    "appworld": ("docs/paper.md",),
    "faults": ("tests/benchmarks/**/*.py", "tests/benchmarks/gpu/*"),
    "hosts": ("docs/operations/team/**/*",),
    "packaged": ("tests/key_value_world/**/*",),
    "program": ("tests/programs/**/*", "docs/own_agent/**/*"),
    "vllm": ("tests/benchmarks/gpu/*",),
    "whole_runs": ("docs/loop_in_one_file.py", "docs/first_steps.ipynb"),
}
"""Files that tests of a lane run or read by their paths."""
KINDS = ("tasks/core/worlds", "tasks/core/engines")
ALWAYS = {"pocketworld", "transformers"}
"""The kinds that a run has which names none."""
COMMAND = re.compile(r"""["'](loopline|dvc)["' ]|flows\.(cli|runners|main_job)""")


def lane_files(lane: str) -> set[Path]:
    """Return the files that the tests of a lane can reach."""
    tests = {file for file in ROOT.glob("tests/**/*.py") if f"pytest.mark.{lane}" in file.read_text(encoding="utf-8")}
    conftests = {folder / "conftest.py" for test in tests for folder in test.parents if folder.is_relative_to(ROOT)}
    begun = tests | {file for file in conftests if file.is_file()}
    words = set(re.findall(r"\w+", " ".join(file.read_text(encoding="utf-8") for file in _tests_of(begun))))
    kinds = ALWAYS | {folder.name for place in KINDS for folder in (ROOT / place).iterdir() if folder.name in words}
    runs_commands = any(COMMAND.search(file.read_text(encoding="utf-8")) for file in _tests_of(begun))
    commands = _all_of("flows") if runs_commands else set()
    return _files(*COMMON, *BY_PATH.get(lane, ())) | _with_kinds(begun | commands, kinds)


def _tests_of(begun: set[Path]) -> set[Path]:
    return {file for file in _reached(begun) if file.is_relative_to(ROOT / "tests")} | begun


def _with_kinds(begun: set[Path], kinds: set[str]) -> set[Path]:
    modules = _reached(begun | {file for place in KINDS for kind in kinds for file in _all_of(f"{place}/{kind}")})
    beside = {file for folder in {module.parent for module in modules} for file in folder.iterdir() if file.is_file()}
    return modules | {file for file in beside if file.suffix not in (".py", ".pyc")} | begun


def _reached(begun: Iterable[Path]) -> set[Path]:
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts) for file in begun)
    return closure(names, ROOT, known=())[1]


def _all_of(folder: str) -> set[Path]:
    return set((ROOT / folder).rglob("*.py"))


def _files(*patterns: str) -> set[Path]:
    return {file for pattern in patterns for file in ROOT.glob(pattern) if file.is_file() and file != PASSED}


def version(lane: str) -> str:
    """Return the SHA-256 over the names and contents of a lane's files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    ours = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    names = sorted({file.relative_to(ROOT).as_posix() for file in lane_files(lane)} & set(ours))
    return digest_of_code((name, digest(ROOT / name)) for name in names)


def passed() -> dict[str, str]:
    return dict(json.loads(PASSED.read_text(encoding="utf-8"))) if PASSED.exists() else {}


def main(what: str, *lanes: str) -> Iterator[str]:
    """Yield the lanes that are due, or note those that passed."""
    before, now = passed(), {lane: version(lane) for lane in lanes}
    if what == "passed":
        PASSED.write_text(json.dumps(before | now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    else:
        yield from (lane for lane in lanes if before.get(lane) != now[lane])


if __name__ == "__main__":
    for due in main(*sys.argv[1:]):
        print(due)
