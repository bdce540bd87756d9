"""The model registry: versions of the trained policy beside each other, and which of them is champion.

    python -m flows.registry list
    python -m flows.registry seeds
    python -m flows.registry compare 3 7 champion [--rescore]
    python -m flows.registry promote 7

A version is named by its number or by an alias (champion, challenger). `seeds` shows how far training runs that differ
in their seed alone lie apart. `compare` reads the scores that are stored with the versions, or plays all splits anew
(--rescore), prints a page and writes it into data/comparisons/. `promote` moves the alias champion if the rule of
params.yaml (lineage.promotion) holds. Exit code 2: no such version; 1: an input is missing, or the rule does not hold.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from flows.dag.checkout_lock import checkout_lock
from flows.errors import is_expected
from tasks.core.config.params import Params, load_params
from tasks.core.config.stage_inputs import RescoringInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.lineage.mlflow_store import explained, open_store, tracking_uri
from tasks.core.lineage.params_and_metrics import registered_model
from tasks.core.processes.caller_variables import settle_variables
from tasks.core.processes.process_memory import spare_old_objects
from tasks.core.records.comparison import Comparison
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError, replacing
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tasks.core.registry.comparison_page import comparison_page
from tasks.core.registry.model_registry import Registry, UnknownVersion, Version
from tasks.core.registry.promotion import Decision, decide
from tasks.core.registry.registration import CHALLENGER, CHAMPION
from tasks.core.registry.seed_spread import seed_spreads, spread_lines
from tasks.core.registry.version_comparison import compare
from tasks.core.registry.version_evaluation import VersionEvaluation


def main(arguments: list[str] | None = None) -> int:
    """Parse, do, and turn expected errors into one message and an exit code."""
    parsed = _parser().parse_args(arguments)
    settle_variables()
    root = Path.cwd()
    spare_old_objects()
    try:
        params = params_of_run(Layout(root))
        with explained(tracking_uri(root)):
            registry = open_registry(root, params, parsed.model)
            if parsed.command == "list":
                return _list(registry)
            if parsed.command == "seeds":
                return _seeds(registry)
            if parsed.command == "promote":
                return _promote(registry, parsed.version, params)
            return _compare(registry, parsed.versions, root, params, parsed.rescore)
    except UnknownVersion as error:
        print(f"flows.registry: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if not is_expected(error):
            raise
        print(f"flows.registry: {error}", file=sys.stderr)
        return 1


def params_of_run(layout: Layout) -> Params:
    """Return the parameters that the run in data/ was recorded with, under `lineage` as params.yaml has it by now.

    Versions are played in the world that the run prepared; a rule of promotion may be changed at any time. Without a
    run, all of params.yaml. Raises ParamsError and ArtifactError.
    """
    params = load_params(layout.params)
    ran = recorded_params(layout) if layout.manifest.exists() else params
    return ran.model_copy(update={"lineage": params.lineage})


def open_registry(root: Path, params: Params, name: str | None = None) -> Registry:
    """The registered model of these params, or the one called `name`. Raises LineageError."""
    return Registry(open_store(params.lineage, root), name or registered_model(params))


def compare_versions(
    registry: Registry, names: Sequence[str], root: Path, params: Params, rescore: bool = False
) -> tuple[Comparison, Path]:
    """Compare the versions with these numbers or aliases; returns the comparison and the folder it was written into.

    One version alone is scored and compared with nothing. Raises UnknownVersion and ArtifactError; then nothing is
    written.
    """
    versions = list({version.number: version for version in map(registry.find, names)}.values())
    layout = Layout(root)
    folder = layout.comparisons / "-".join([registry.name, *(str(version.number) for version in versions)])
    with replacing(folder) as temporary:
        temporary.mkdir()
        if rescore:
            scored = _rescored(registry, versions, StageContext(layout, RescoringInputs.of(params)), temporary)
        else:
            scored = [(version, registry.evaluation(version)) for version in versions]
        comparison = compare(registry.name, scored, params.lineage.promotion.confidence, rescore)
        write_document(temporary / "comparison.json", comparison)
        (temporary / "comparison.md").write_text(comparison_page(comparison), encoding="utf-8")
    return comparison, folder


def promote_version(registry: Registry, name: str, params: Params) -> Decision:
    """Move the alias champion to this version if the rule holds, and say why. Raises UnknownVersion, ArtifactError."""
    version = registry.find(name)
    if CHAMPION in version.aliases:
        return Decision(True, (f"version {version.number} is the champion already",))
    champion = next((other for other in registry.versions if CHAMPION in other.aliases), None)
    theirs = registry.evaluation(champion) if champion else None
    decision = decide(registry.evaluation(version), theirs, params.lineage.promotion)
    if decision.promote:
        registry.move_alias(CHAMPION, version)
        if CHALLENGER in version.aliases:
            registry.drop_alias(CHALLENGER)
    against = f"version {champion.number}, the champion" if champion else "the base policy, since there is no champion"
    return Decision(decision.promote, (f"version {version.number} against {against}", *decision.reasons))


def _rescored(
    registry: Registry, versions: Sequence[Version], context: StageContext[RescoringInputs], folder: Path
) -> list[tuple[Version, VersionEvaluation]]:
    from tasks.core.engines.registry import forget_paid_answers
    from tasks.core.registry.rescoring import rescored_evaluation

    try:
        scored = [(version, rescored_evaluation(registry, version, context, folder)) for version in versions]
        played = [outcome for _, evaluation in scored for part in evaluation.outcomes.values() for outcome in part]
        forget_paid_answers(context.inputs.engine.name, {outcome.task_id for outcome in played})
        return scored
    finally:
        context.cache.close()


def _compare(registry: Registry, names: Sequence[str], root: Path, params: Params, rescore: bool) -> int:
    with checkout_lock(root, "compare --rescore") if rescore else nullcontext():
        comparison, folder = compare_versions(registry, names, root, params, rescore)
    print(comparison_page(comparison))
    print(f"written to {folder.relative_to(root)}/")
    return 0


def _promote(registry: Registry, name: str, params: Params) -> int:
    decision = promote_version(registry, name, params)
    print("\n".join(decision.reasons))
    print(f"{'promoted' if decision.promote else 'not promoted'} (rule: lineage.promotion in params.yaml)")
    return 0 if decision.promote else 1


def _list(registry: Registry) -> int:
    count = len(registry.versions)
    print(f"{registry.name}: {count} {'version' if count == 1 else 'versions'}")
    for version in registry.versions:
        made = datetime.fromtimestamp(version.created_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        tags = version.tags
        parent = f"parent {tags.get('parent_version', '?')}"
        aliases = f"  {', '.join(version.aliases)}" if version.aliases else ""
        print(f"{version.number:4}  {made}  {tags.get('iteration', '?')}  {parent}{aliases}")
    return 0


def _seeds(registry: Registry) -> int:
    print("\n".join(spread_lines(seed_spreads(_readable(registry)))))
    return 0


def _readable(registry: Registry) -> Iterator[tuple[int, VersionEvaluation]]:
    """The versions whose evaluations this code can read; the others are told."""
    for version in registry.versions:
        try:
            yield version.number, registry.evaluation(version)
        except ArtifactError as error:
            print(f"left out: {error}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m flows.registry", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="another registered model than the one of params.yaml")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="all versions, their aliases and parents")
    commands.add_parser("seeds", help="spread of the scores over training seeds")
    comparing = commands.add_parser("compare", help="scores, differences, behaviour and parameters of versions")
    comparing.add_argument("versions", nargs="+", help="numbers or aliases")
    comparing.add_argument("--rescore", action="store_true", help="play all splits anew in this working tree's world")
    promoting = commands.add_parser("promote", help="make a version champion if the rule in params.yaml holds")
    promoting.add_argument("version", help="its number or an alias")
    return parser


if __name__ == "__main__":
    sys.exit(main())
