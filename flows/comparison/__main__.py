"""Compare methods: every (method, seed) as a DVC experiment, then one table.

    python -m flows.comparison STUDY [--seeds 0,1] [--jobs 2]
    python -m flows.comparison --methods loop,grpo,rloo --seeds 0,1,2 [--base default] [--set a.b=c] [--name NAME]

STUDY is a YAML file, or the name of one in flows/comparison/studies. Stopped or killed, the same command goes on. The
result is data/comparisons/NAME: table.md, table.csv (runs), methods.csv, index.html, study.json.
"""

import argparse
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from flows.arguments import whole_number
from flows.comparison.attempts import read_cost, read_stamp
from flows.comparison.plan import StudyPlan, checked, chosen, read_plan, runs
from flows.comparison.running import Place, run_all
from flows.comparison.workspaces import remove_workspaces, take_snapshot
from flows.dag.checkout_lock import held
from flows.errors import is_expected
from flows.profile_stack import UnknownProfile
from tasks.core.config.lineage import LineageConfig
from tasks.core.config.params import ParamsError
from tasks.core.lineage.mlflow_store import open_store, tracking_uri
from tasks.core.processes.caller_variables import settle_variables
from tasks.core.processes.usable_cores import usable_cores
from tasks.core.records.documents import write_document
from tasks.core.records.files import replacing
from tasks.core.records.layout import Layout
from tasks.core.records.study import Study
from tasks.core.study.comparing import compare
from tasks.core.study.finished_run import RunLabel, read_finished_run
from tasks.core.study.page import markdown, study_page
from tasks.core.study.tables import methods_csv, runs_csv

WORKSPACES = Path(".loopline/studies")


def main(arguments: list[str] | None = None) -> int:
    """Run, print the table. Exit code 2: no such profile or study; 1: a run failed, or the result breaks a rule."""
    parsed = _parser().parse_args(arguments)
    settle_variables()
    root = Path.cwd()
    try:
        plan = _plan(parsed)
        if parsed.remove:
            with _study_lock(root, plan):
                remove_workspaces(root, root / WORKSPACES / plan.name)
            return 0
        places = [Place(run, root / WORKSPACES / plan.name / f"{run.method}-s{run.seed}") for run in runs(plan)]
        failures = [] if parsed.report else _run(root, plan, places, parsed.jobs)
        study = _study(plan, places)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not is_expected(error):
            raise
        print(f"flows.comparison: {error}", file=sys.stderr)
        return 2 if isinstance(error, UnknownProfile) else 1
    for failure in failures:
        print(f"flows.comparison: {failure}", file=sys.stderr)
    if study is None:
        print("flows.comparison: no run has ended yet", file=sys.stderr)
        return 1
    folder = write_study(root, study)
    print(markdown(study) + f"\n{folder}/index.html has the learning curves.")
    return 1 if failures else 0


def write_study(root: Path, study: Study) -> Path:
    """Write data/comparisons/<name>, each file atomically. Returns the folder."""
    folder = Layout(root).comparisons / study.name
    folder.mkdir(parents=True, exist_ok=True)
    write_document(folder / "study.json", study)
    for name, content in (
        ("table.md", markdown(study)),
        ("table.csv", runs_csv(study)),
        ("methods.csv", methods_csv(study)),
        ("index.html", study_page(study)),
    ):
        with replacing(folder / name) as temporary:
            temporary.write_text(content, encoding="utf-8")
    return folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m flows.comparison", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", nargs="?", help="a YAML file, or the name of one in flows/comparison/studies")
    parser.add_argument("--methods", type=_words, help="of the study; without a study, profiles (loop: the base alone)")
    parser.add_argument("--seeds", type=_words, help="training seeds")
    parser.add_argument("--base", type=_words, help="profiles under all methods")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=VALUE", help="a knob of all methods")
    parser.add_argument("--against", help="the method that the others are compared with")
    parser.add_argument("--name", help="name of the study, of its folder and of its experiments")
    parser.add_argument("--jobs", type=whole_number(1), default=max(1, usable_cores()), help="runs at a time")
    parser.add_argument("--remove", action="store_true", help="delete its working trees; tables and experiments stay")
    parser.add_argument("--report", action="store_true", help="only write the tables of the runs that have ended")
    return parser


def _plan(parsed: argparse.Namespace) -> StudyPlan:
    place = parsed.study or "study"
    content = checked(read_plan(parsed.study) if parsed.study else _study_of_profiles(parsed), place).model_dump()
    if parsed.study and parsed.methods:
        content = chosen(content, parsed.methods)
    given = {"seeds": parsed.seeds, "base": parsed.base, "against": parsed.against, "name": parsed.name}
    content |= {name: value for name, value in given.items() if value is not None}
    content["settings"] = [*content["settings"], *parsed.set]
    return checked(content, place)


def _study_of_profiles(parsed: argparse.Namespace) -> dict[str, Any]:
    if not parsed.methods:
        raise ParamsError("name a study, or --methods")
    methods = {name: None if name == "loop" else name for name in parsed.methods}
    return {"name": "-".join(parsed.methods), "methods": methods}


def _run(root: Path, plan: StudyPlan, places: list[Place], jobs: int) -> list[str]:
    with _study_lock(root, plan):
        open_store(LineageConfig(experiment=plan.name), root)  # once, before several runs would make it
        return run_all(root, places, take_snapshot(root), jobs, tracking_uri(root))


def _study_lock(root: Path, plan: StudyPlan) -> AbstractContextManager[None]:
    """Hold the study: a second command would bring other code into the workspaces of runs that are at work."""
    return held(root / WORKSPACES / f"{plan.name}.lock", "flows.comparison", f"on the study {plan.name}")


def _study(plan: StudyPlan, places: list[Place]) -> Study | None:
    """The study of the runs that have ended with the plan's parameters; None before the first has.

    Raises ParamsError, also where no run has ended: a knob that does not exist is told.
    """
    stamps = [(place, place.params_digest, read_stamp(place.folder)) for place in places]
    ended = [(place, made) for place, digest, made in stamps if made and made.params == digest]
    if not ended:
        return None
    found = [read_finished_run(place.folder, _label(place)) for place, _ in ended]
    done = {place.plan.experiment for place, _ in ended}
    missing = [place.plan.experiment for place in places if place.plan.experiment not in done]
    notes = [f"Not in the tables, for they have not ended: {', '.join(missing)}."] if missing else []
    if len({made.code for _, made in ended}) > 1:
        commits = ", ".join(sorted({made.commit[:12] for _, made in ended}))
        notes.append(f"The runs are of different code: of these commits, or of what was changed after them: {commits}.")
    return compare(plan.name, plan.against, found, plan.confidence, ended[0][1].commit, notes, plan.orderings)


def _label(place: Place) -> RunLabel:
    run, cost = place.plan, read_cost(place.folder)
    return RunLabel(run.method, run.seed, run.experiment, run.command, cost.wall_s, cost.cpu_s)


def _words(text: str) -> list[str]:
    words = [word for word in text.split(",") if word]
    if twice := sorted({word for word in words if words.count(word) > 1}):
        raise argparse.ArgumentTypeError(f"{', '.join(twice)}: named twice")
    return words


if __name__ == "__main__":
    sys.exit(main())
