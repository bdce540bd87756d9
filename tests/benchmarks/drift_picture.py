"""The learning curve of the README: dev TGC over 90 iterations, from the table of docs/results/late_drift.md.

python tests/benchmarks/drift_picture.py docs/results/late_drift.md docs/pictures/learning_curve_90.svg [--method loop]
"""

import argparse
import re
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

EVERY = 6
"""Iterations between two evaluations of the study."""


def curves(page: str, method: str) -> list[list[int]]:
    """Return the dev TGC of each seed of a method, from the base on, as its rows of the page have them."""
    rows = re.findall(rf"^\| {method}, seed \d+ \| ([\d ]+) \|$", page, re.MULTILINE)
    if not rows:
        raise SystemExit(f"no row of {method}")
    return [[int(figure) for figure in row.split()] for row in rows]


def draw(seeds: list[list[int]], picture: Path) -> None:
    """A thin line per seed, and a thick one for their mean."""
    matplotlib.rcParams["svg.hashsalt"] = "loopline"
    iterations = [EVERY * number for number in range(len(seeds[0]))]
    figure, axis = pyplot.subplots(figsize=(8.6, 2.9))
    for number, seed in enumerate(seeds):
        axis.plot(iterations, seed, color="C0", alpha=0.35, lw=1, label="a training seed" if not number else None)
    means = [statistics.mean(figures) for figures in zip(*seeds, strict=True)]
    axis.plot(iterations, means, "o-", color="C0", ms=3.5, lw=2, label=f"mean of {len(seeds)}")
    axis.set(xlabel="iteration of 144 rollouts", ylabel="dev tasks solved (TGC, %)", ylim=(0, 100), xlim=(-1, 91))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--method", default="loop")
    arguments = parser.parse_args()
    draw(curves(arguments.page.read_text(encoding="utf-8"), arguments.method), arguments.picture)


if __name__ == "__main__":
    main()
