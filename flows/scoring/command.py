"""The work of `loopline score`: its models one after another, then the table, and the comparison of several."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from flows.scoring.asked_models import AskedModel
from flows.scoring.ready_models import Asked, ready_model
from flows.scoring.score_models import ScoredModel, score_model
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.lineage.mlflow_store import LineageError
from tasks.core.lineage.params_and_metrics import flat_params
from tasks.core.records.documents import write_document
from tasks.core.records.files import replacing
from tasks.core.scored_models.comparing import compared
from tasks.core.scored_models.tables import comparison_page, score_page
from tasks.core.scored_models.tracking import record_score


def scored(models: Sequence[AskedModel], asked: Asked, into: Path) -> tuple[str, bool]:
    """Score all models; return the page of tables, and whether all of it is recorded in MLflow too.

    Raises what `ready_model` and `score_model` raise; models that were scored before that stay scored.
    """
    cache = ProcessCache()
    try:
        found = [score_model(ready_model(model, asked), asked, into, cache) for model in models]
    finally:
        cache.close()
    page = score_page([found[0].score]) if len(found) == 1 else _compared(found, into)
    recorded = [_recorded(each, asked.root) for each in found]
    return page, all(recorded)


def _compared(found: Sequence[ScoredModel], into: Path) -> str:
    """Write the comparison beside the scores, and return its page."""
    params = {each.score.name: flat_params(each.params) for each in found}
    comparison = compared([(each.score, each.rows) for each in found], params)
    key = hashlib.sha256("".join(each.score.key for each in found).encode()).hexdigest()
    folder, page = into / f"comparison-{key[:8]}", comparison_page(comparison)
    with replacing(folder) as temporary:
        temporary.mkdir()
        write_document(temporary / "comparison.json", comparison)
        (temporary / "comparison.md").write_text(page + "\n", encoding="utf-8")
    return f"{page}\n\nwritten to {folder}"


def _recorded(each: ScoredModel, root: Path) -> bool:
    try:
        record_score(each.score, each.params, each.folder, root)
    except LineageError as error:
        print(f"{error}. The score is in {each.folder}; the same command records it later", file=sys.stderr)
        return False
    return True
