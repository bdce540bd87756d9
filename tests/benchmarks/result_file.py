"""The one way a benchmark's figures are written: with the machine, the versions and the command that made them."""

import json
import os
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tasks.core.processes.resources import usable_cores

RESULTS = Path(os.environ.get("LOOPLINE_RESULTS", Path(__file__).parent / "results"))


def write_result(
    name: str,
    figures: dict[str, Any],
    packages: tuple[str, ...] = ("torch", "transformers", "peft"),
    *,
    quiet: bool = False,
    part: str | None = None,
) -> None:
    """Write `figures` to results/<name>.json and print them, unless `quiet`.

    With `part` the file has several records, by their names: the others stay.
    """
    record = {
        "command": shlex.join(["python", _relative(sys.argv[0]), *sys.argv[1:]]),
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": usable_cores(),
            "load": round(os.getloadavg()[0], 2),
        },
        "versions": {"python": platform.python_version(), **{package: version(package) for package in packages}},
        **figures,
    }
    file = RESULTS / f"{name}.json"
    if part is not None:
        others = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        record = others | {part: record}
    text = json.dumps(record, indent=2) + "\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    if not quiet:
        print(text, end="")


def machine_kind() -> str:
    """Processor and cores: what two machines have in common whose figures can be compared."""
    return f"{_processor()}, {usable_cores()} cores"


def _relative(script: str) -> str:
    """The script as it is called from the project's root, wherever that lies."""
    path, root = Path(script).resolve(), Path(__file__).resolve().parents[2]
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else script


def _processor() -> str:
    """The model's name as Linux knows it, which `platform.processor` does not say."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
