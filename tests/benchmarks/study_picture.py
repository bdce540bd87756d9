"""The scores of a study as a picture: each training seed a dot, their mean a stroke.

python tests/benchmarks/study_picture.py data/comparisons/methods/study.json docs/pictures/methods.svg
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

from tasks.core.pages.tables import SPLIT_NAMES
from tasks.core.records.documents import read_document
from tasks.core.records.study import Study


def draw(study: Study, picture: Path) -> None:
    """TGC on both test splits, the best method on top."""
    matplotlib.rcParams["svg.hashsalt"] = "loopline"
    methods = _by_mean(study)
    height = 0.8 + 0.24 * len(methods)
    figure, axes = pyplot.subplots(1, len(SPLIT_NAMES), figsize=(8.6, height), sharey=True)
    for plot, (split, title) in zip(axes, SPLIT_NAMES.items(), strict=True):
        _draw_split(study, methods, split, plot)
        plot.set(title=f"{title} TGC, percent", xlim=(0, 100))
        plot.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(methods)), methods)
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


def _by_mean(study: Study) -> list[str]:
    means = {
        score.method: score.mean for score in study.scores if (score.split, score.metric) == ("test_normal", "tgc")
    }
    return sorted(means, key=means.__getitem__)


def _draw_split(study: Study, methods: list[str], split: str, plot: Any) -> None:
    for score in study.scores:
        if (score.split, score.metric) == (split, "tgc"):
            row, color = methods.index(score.method), "C1" if score.method == study.against else "C0"
            plot.plot(score.mean, row, "|", color=color, ms=11, mew=2)
    dots = [(run.scores[split].tgc, methods.index(run.method)) for run in study.runs]
    plot.plot(*zip(*dots, strict=True), "o", color="black", ms=2.5, zorder=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    draw(read_document(arguments.study, Study), arguments.picture)


if __name__ == "__main__":
    main()
