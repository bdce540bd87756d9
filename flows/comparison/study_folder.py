"""A study: its plan, its runs under .loopline/studies, and its result.

The result is data/comparisons/NAME: table.md, index.html, and study.json, which has the outcomes by task.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

from flows.comparison.plan import RunPlan, StudyPlan, checked, chosen, read_plan, runs, with_controls
from flows.comparison.running import Place, read_stamp, remove_workspaces, run_all, take_snapshot
from flows.dag.checkout_lock import held
from flows.params_file import WrongSetting
from tasks.core.config.lineage import LineageConfig
from tasks.core.lineage.mlflow_store import open_store, tracking_uri
from tasks.core.processes.resources import usable_cores
from tasks.core.records.comparison import Study
from tasks.core.records.documents import write_document
from tasks.core.records.files import replacing
from tasks.core.records.layout import Layout
from tasks.core.study import RunLabel, markdown, read_finished_run, study_of, study_page

WORKSPACES = Path(".loopline/studies")


def asked_plan(
    study: str | None,
    methods: Sequence[str] | None,
    settings: Sequence[str],
    changes: Mapping[str, Any],
    controls: bool = False,
) -> StudyPlan:
    """Return the plan of a study (None: one of the profiles `methods`) with changes on top, None meaning no change.

    Raises ParamsError, WrongSetting among them.
    """
    name = study or "study"
    content = checked(read_plan(study) if study else _study_of_profiles(methods), name).model_dump()
    if study and methods:
        content = chosen(content, methods)
    content |= {key: value for key, value in changes.items() if value is not None}
    content["settings"] = [*content["settings"], *settings]
    return checked(with_controls(content) if controls else content, name)


def _study_of_profiles(methods: Sequence[str] | None) -> dict[str, Any]:
    if not methods:
        raise WrongSetting("name a study, or --methods")
    return {"name": "-".join(methods), "methods": {name: None if name == "loop" else name for name in methods}}


class StudyFolder:
    """A study in the checkout at `root`."""

    def __init__(self, root: Path, plan: StudyPlan) -> None:
        self._root, self._plan = root, plan

    @cached_property
    def _places(self) -> list[Place]:
        folder = self._root / WORKSPACES / self._plan.name
        return [Place(run, folder / f"{run.method}-s{run.seed}") for run in runs(self._plan)]

    def bring_to_end(self, jobs: int | None) -> list[str]:
        """Run what has not ended yet, `jobs` at a time (None: one per core), and return a line per failure.

        Raises CheckoutBusy where another command runs the study, UnknownProfile, ParamsError and WorkspaceError.
        """
        places = self._places
        with self._lock():
            open_store(LineageConfig(experiment=self._plan.name), self._root)  # once, before several runs would make it
            snapshot, tracking = take_snapshot(self._root), tracking_uri(self._root)
            return run_all(self._root, places, snapshot, jobs or max(1, usable_cores()), tracking)

    def remove(self) -> None:
        """Delete the working trees. Raises CheckoutBusy."""
        with self._lock():
            remove_workspaces(self._root, self._root / WORKSPACES / self._plan.name)

    def _lock(self) -> AbstractContextManager[None]:
        """Hold the study: a second command would bring other code into the workspaces of runs that are at work."""
        name = self._plan.name
        return held(self._root / WORKSPACES / f"{name}.lock", "loopline compare", f"on the study {name}")

    def read(self) -> Study | None:
        """Return the study of the runs that have ended with the plan's parameters; None before the first has.

        Raises ParamsError, also where no run has ended: a knob that does not exist is an error.
        """
        plan, places = self._plan, self._places
        stamps = [(place, place.params_digest, read_stamp(place.folder)) for place in places]
        ended = [(place, made) for place, digest, made in stamps if made and made.params == digest]
        if not ended:
            return None
        done = {place.plan.experiment for place, _ in ended}
        missing = [place.plan.experiment for place in places if place.plan.experiment not in done]
        notes = [f"Not in the tables, for they have not ended: {', '.join(missing)}."] if missing else []
        if len({made.code for _, made in ended}) > 1:
            commits = ", ".join(sorted({made.commit[:12] for _, made in ended}))
            notes.append(
                f"The runs are of different code: of these commits, or of what was changed after them: {commits}."
            )
        read = [read_finished_run(place.folder, _label(place.plan, plan)) for place, _ in ended]
        return study_of(read, plan.name, plan.against, plan.orderings, plan.confidence, ended[0][1].commit, notes)

    def write(self, study: Study) -> Path:
        """Write data/comparisons/NAME, each file atomically, and return the folder."""
        folder = Layout(self._root).comparisons / study.name
        folder.mkdir(parents=True, exist_ok=True)
        write_document(folder / "study.json", study)
        for name, content in (("table.md", markdown(study)), ("index.html", study_page(study))):
            with replacing(folder / name) as temporary:
                temporary.write_text(content, encoding="utf-8")
        return folder


def _label(run: RunPlan, plan: StudyPlan) -> RunLabel:
    return RunLabel(run.method, run.seed, run.command, plan.methods[run.method].trained)
