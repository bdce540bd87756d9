"""A finished run of this checkout as a published one."""

import shutil
from pathlib import Path

from flows.dag.version_stages import changed_code
from flows.published.finished_run import finished_stages, run_digests, run_facts
from flows.published.records import PUBLISHED
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError, replacing
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params


def publish(root: Path, name: str) -> Path:
    """Write what the run in `root` is made of and from; return the folder.

    Raises ArtifactError where the run is not whole, or the code here is not the code that it ran.
    """
    stages = finished_stages(root)
    if changed := [*changed_code(stages, recorded_params(Layout(root)), root)]:
        raise ArtifactError(f"not the run of the code here: {changed[0]}")
    folder = root / PUBLISHED / name
    with replacing(folder) as temporary:
        temporary.mkdir()
        write_document(temporary / "run.json", run_facts(root))
        write_document(temporary / "digests.json", run_digests(root))
        shutil.copyfile(root / "dvc.lock", temporary / "dvc.lock")
    return folder
