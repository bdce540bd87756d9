"""The work of `loopline score`: its models one after another, and their comparison."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from flows.scoring.asked_models import AskedModel
from flows.scoring.ready_models import Asked, ready_model
from flows.scoring.score_models import ScoredModel, score_model
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.lineage.mlflow_store import LineageError
from tasks.core.records.comparison import ALL_LEVELS, Comparison
from tasks.core.scored_models.comparing import compared
from tasks.core.scored_models.comparison_page import write_comparison
from tasks.core.scored_models.tracking import record_score


def scored(models: Sequence[AskedModel], asked: Asked, into: Path) -> tuple[Comparison, bool]:
    """Score all models; return them compared, and whether all of it is recorded in MLflow too.

    The comparison of several is written beside the scores. Raises what `ready_model` and `score_model` raise; models
    that were scored before that stay scored.
    """
    cache = ProcessCache()
    try:
        found = [score_model(ready_model(model, asked), asked, into, cache) for model in models]
    finally:
        cache.close()
    level = found[0].score.scores.levels[ALL_LEVELS]
    title = f"{asked.world}, {asked.split}: {level.tasks} tasks of {level.scenarios} scenarios, percent"
    comparison = compared(title, [each.played for each in found])
    if len(found) > 1:
        key = hashlib.sha256("".join(each.score.key for each in found).encode()).hexdigest()
        write_comparison(into / f"comparison-{key[:8]}", comparison)
    recorded = [_recorded(each, asked.root) for each in found]
    return comparison, all(recorded)


def _recorded(each: ScoredModel, root: Path) -> bool:
    try:
        record_score(each.score, each.params, each.folder, root)
    except LineageError as error:
        print(f"{error}. The score is in {each.folder}; the same command records it later", file=sys.stderr)
        return False
    return True
