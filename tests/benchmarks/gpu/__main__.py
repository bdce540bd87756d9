"""Run the parts of the GPU check one after the other and report on every line: see check.sh."""

import argparse
import os
import tempfile
import time
from pathlib import Path

from result_file import RESULTS, write_result

from gpu.goals import lines_of, table
from gpu.parts import CONTEXT, PARTS, PRELOADED, ask_device, record, run_part

LONGEST_S = 7200.0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="check.sh", description="Check a GPU against this project's goals.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(part.name for part in PARTS)}")
    parser.add_argument("--cpu", action="store_true", help="in little on the CPU, whatever is there")
    parser.add_argument("--seconds", type=float, default=LONGEST_S, help="for all parts together")
    parser.add_argument("--report", action="store_true", help="run nothing; report on the results that are there")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - {part.name for part in PARTS}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return arguments


def main() -> None:
    """Run what is asked for, then print a line for each goal."""
    arguments, deadline = parse(), time.monotonic()
    deadline += arguments.seconds
    if arguments.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if arguments.report:
        report(RESULTS / "gpu")
        return
    CONTEXT.set_forkserver_preload(PRELOADED)
    device = ask_device()
    folder = RESULTS / ("gpu" if device["cuda"] else "gpu_in_little")
    chosen = arguments.parts or [part.name for part in PARTS if device["cuda"] or part.in_little]
    with tempfile.TemporaryDirectory() as logs:
        for part in (part for part in PARTS if part.name in chosen):
            (folder / f"{part.name}.json").unlink(missing_ok=True)
            begin = time.monotonic()
            limit = part.seconds if device["cuda"] else LONGEST_S
            added = run_part(part, min(limit, deadline - begin), Path(logs) / part.name)
            record(folder, part.name, added, device)
            outcome = added.get("failed") or added.get("skipped") or "done"
            print(f"{part.name}: {outcome} ({time.monotonic() - begin:.0f} s)", flush=True)
    report(folder)


def report(folder: Path) -> None:
    """Write report.json and print the table."""
    lines = lines_of(folder)
    figures = {"lines": [line._asdict() for line in lines]}
    write_result(f"{folder.name}/report", figures, packages=(), quiet=True)
    print(table(lines))


if __name__ == "__main__":
    main()
