"""The model registry: versions of the trained policy, compared, and which of them is champion.

A version is named by its number or by an alias (champion, challenger). Versions are compared by the scores that are
stored with them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tasks.core.config.lineage import PromotionRule
from tasks.core.config.params import Params, ParamsError, load_params
from tasks.core.config.splits import MEASURED_SPLITS
from tasks.core.config.stage_inputs import RescoringInputs
from tasks.core.evaluation.differences import CONFIDENCE, METRICS, PairedTest, paired_test
from tasks.core.evaluation.level_scores import split_scores
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.interfaces.stage import StageContext
from tasks.core.lineage.dvc_lock import read_lock
from tasks.core.lineage.mlflow_store import explained, open_store, tracking_uri
from tasks.core.lineage.params_and_metrics import registered_model
from tasks.core.records.comparison import Comparison, SplitScores
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tasks.core.records.schemas import BASE_POLICY, SELECTED_POLICY
from tasks.core.registry.model_registry import CHALLENGER, CHAMPION, Registry, Version, VersionEvaluation
from tasks.core.scored_models.comparing import PlayedModel, compared, write_comparison

METRIC = "tgc"
BETTER_ON = "dev"
"""The split on which a champion must have gained: the tests stay out of the choice."""


@dataclass(frozen=True)
class Decision:
    """The verdict of the promotion rule."""

    promote: bool
    reasons: tuple[str, ...]
    """One sentence for each part of the rule, with its figures."""


def decide(candidate: VersionEvaluation, champion: VersionEvaluation | None, rule: PromotionRule) -> Decision:
    """Compare the candidate with the champion, or with its own base policy if there is none.

    Versions that were scored differently cannot be compared: the candidate is refused.
    """
    if champion is not None and (refusal := _scored_differently(candidate, champion, rule)):
        return Decision(False, (refusal,))
    gained, kept = (_test(candidate, champion, split) for split in (BETTER_ON, rule.not_worse_on))
    better = gained is not None and gained.difference > 0
    not_worse = kept is not None and (kept.difference if kept.high is None else kept.high) >= 0
    reasons = (
        f"{METRIC.upper()} on {BETTER_ON}: {_told(gained, 'better' if better else 'not better')}",
        f"{METRIC.upper()} on {rule.not_worse_on}: {_told(kept, 'not worse' if not_worse else 'worse')}",
    )
    return Decision(better and not_worse, reasons)


def _scored_differently(candidate: VersionEvaluation, champion: VersionEvaluation, rule: PromotionRule) -> str | None:
    knobs = {"candidate": candidate.params, "champion": champion.params}
    conditions = scored_differently(knobs, (BETTER_ON, rule.not_worse_on))
    if not conditions:
        return None
    differing = ", ".join(
        f"{name} {held['candidate']} (champion: {held['champion']})" for name, held in conditions.items()
    )
    return (
        f"scored differently, so the scores do not compare: {differing}; give params.yaml the champion's values, run "
        "`dvc repro` and promote the version that it records, or keep the two apart by `lineage.registered_model`"
    )


def _test(candidate: VersionEvaluation, champion: VersionEvaluation | None, split: str) -> PairedTest | None:
    theirs = (champion or candidate).outcomes.get((split, SELECTED_POLICY if champion else BASE_POLICY), [])
    means = METRICS[METRIC]
    return paired_test(means(theirs), means(candidate.outcomes.get((split, SELECTED_POLICY), [])), CONFIDENCE)


def _told(test: PairedTest | None, verdict: str) -> str:
    if test is None:
        return "nothing that both have played"
    interval = "no interval: one scenario or no spread"
    if test.low is not None and test.high is not None:
        interval = f"{100 * CONFIDENCE:g}% interval {test.low:+.1f} to {test.high:+.1f}"
    return f"{verdict} ({test.difference:+.1f} points, {interval})"


BASE_TAG = "dataset.data/policy"


def params_of_run(layout: Layout) -> Params:
    """Return the parameters that the run in data/ was recorded with, under `lineage` as params.yaml has it by now.

    A rule of promotion may be changed at any time. Without a run, or with one of another version of loopline, all of
    params.yaml: versions hold what is known of them. Raises ParamsError.
    """
    ran = params = load_params(layout.params)
    with suppress(ArtifactError, ParamsError):
        ran = recorded_params(layout)
    return ran.model_copy(update={"lineage": params.lineage})


@contextmanager
def opened(root: Path, name: str | None = None) -> Iterator[tuple[Registry, Params]]:
    """Yield the registered model of the run in data/ (or the one called `name`) with the run's parameters.

    What MLflow raises in the block becomes one LineageError. Raises LineageError, ParamsError and ArtifactError.
    """
    params = params_of_run(Layout(root))
    with explained(tracking_uri(root)):
        yield open_registry(root, params, name), params


def open_registry(root: Path, params: Params, name: str | None = None) -> Registry:
    """Return the registered model of these params, or the one called `name`. Raises LineageError."""
    return Registry(open_store(params.lineage, root), name or registered_model(params))


def compare_versions(registry: Registry, names: Sequence[str], root: Path) -> tuple[Comparison, Path]:
    """Compare the versions with these numbers or aliases; returns the comparison and the folder it was written into.

    One version alone is compared with nothing. Raises UnknownVersion and ArtifactError; then nothing is written.
    """
    versions = list({version.number: version for version in map(registry.find, names)}.values())
    found = compared(registry.name, [_played(version, registry.evaluation(version)) for version in versions])
    folder = Layout(root).comparisons / "-".join([registry.name, *(str(version.number) for version in versions)])
    write_comparison(folder, found)
    return found, folder


def _played(version: Version, evaluation: VersionEvaluation) -> PlayedModel:
    changed = " (changed)" if version.tags.get("git_dirty") == "true" else ""
    facts = {
        "aliases": ", ".join(version.aliases) or "-",
        "iteration": version.tag("iteration"),
        "adapter": version.tag("adapter_digest")[:12],
        "params": version.tag("params_digest")[:12],
        "commit": (version.tags.get("git_commit", "")[:12] or "unknown") + changed,
    }
    named = {split: evaluation.outcomes.get((split, SELECTED_POLICY)) for split in MEASURED_SPLITS}
    outcomes: dict[str, list[Outcome]] = {split: found for split, found in named.items() if found}
    scores: dict[str, SplitScores] = {
        split: split_scores(outcomes[split], evaluation.behaviour.get(split), evaluation.own.get(split))
        for split in MEASURED_SPLITS
        if split in outcomes
    }
    return PlayedModel(str(version.number), facts, scores, outcomes, evaluation.params)


def promote_version(registry: Registry, name: str, params: Params) -> Decision:
    """Move the alias champion to this version if the rule holds, and say why. Raises UnknownVersion, ArtifactError."""
    version = registry.find(name)
    if CHAMPION in version.aliases:
        return Decision(True, (f"version {version.number} is the champion already",))
    champion = next((other for other in registry.versions if CHAMPION in other.aliases), None)
    theirs = registry.evaluation(champion) if champion else None
    decision = decide(registry.evaluation(version), theirs, params.lineage.promotion)
    if decision.promote:
        client = registry.store.client
        client.set_registered_model_alias(registry.name, CHAMPION, str(version.number))
        if CHALLENGER in version.aliases:
            client.delete_registered_model_alias(registry.name, CHALLENGER)
    against = f"version {champion.number}, the champion" if champion else "the base policy, since there is no champion"
    return Decision(decision.promote, (f"version {version.number} against {against}", *decision.reasons))


def require_same_base(version: Version, context: StageContext[RescoringInputs]) -> None:
    """Check that the version was trained from this base policy. Raises ArtifactError otherwise.

    An adapter for another base model would still load, but mean nothing.
    """
    inputs, layout = context.inputs, context.layout
    name = layout.base_policy.relative_to(layout.root).as_posix()
    ours = read_lock(layout.root / "dvc.lock", inputs.previous, inputs.evaluated).artifacts.get(name)
    theirs = version.tags.get(BASE_TAG)
    if ours != theirs:
        raise ArtifactError(
            f"version {version.number} was trained from the base policy {theirs}, but {name} is {ours}; "
            f"check out commit {version.tags.get('git_commit', '?')[:12]} and run `dvc checkout`, or `dvc pull`"
        )
