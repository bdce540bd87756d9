"""The rows of `dvc metrics show`: selected policy and base on every split."""

from tasks.core.config.splits import TEST_SPLITS
from tasks.core.records.documents import Document, IterationKey, Percent, Positive, write_document
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Scores, Selection


class SplitSummary(Document):
    """summary/<split>.json: few figures, since DVC shows each as a column. scores/<split>.json has all."""

    iteration: IterationKey
    """The iteration that was selected."""
    base_tgc: Percent
    tgc: Percent
    tgc_gain: float
    """Selected minus base, in percentage points."""
    tgc_gain_se: Positive | None
    """Standard error of the paired difference, clustered by scenario. None on dev, where the choice was made."""
    base_sgc: Percent
    sgc: Percent


def write_summaries(layout: Layout, selection: Selection, scores: list[Scores]) -> None:
    """Write one summary for dev and one for each test split, in the order of TEST_SPLITS."""
    write_document(layout.summary("dev"), summary_of_dev(selection))
    for split, scored in zip(TEST_SPLITS, scores, strict=True):
        write_document(layout.summary(split), summary_of_test(scored))


def summary_of_dev(selection: Selection) -> SplitSummary:
    """Return the figures by which the checkpoint was chosen; the first candidate is the base policy."""
    base = selection.candidates[0]
    return SplitSummary(
        iteration=selection.iteration,
        base_tgc=base.dev_tgc,
        tgc=selection.dev_tgc,
        tgc_gain=selection.dev_tgc - base.dev_tgc,
        tgc_gain_se=None,
        base_sgc=base.dev_sgc,
        sgc=selection.dev_sgc,
    )


def summary_of_test(scores: Scores) -> SplitSummary:
    """Return the few of the scores of a test split."""
    return SplitSummary(**{name: getattr(scores, name) for name in SplitSummary.model_fields})
