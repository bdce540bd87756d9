"""Sending shards of an iteration to a machine that lacks the project's files, against playing them.

    python tests/benchmarks/shard_sending.py [PROFILE] [--shards 2] [--set a.b=c ...]      results/shard_sending.json

What Ray is given is made here by hand, without Ray and without a second machine: the pickled shard, the files that it
needs, brought into an empty cache, and the pickled rollouts. The bytes of all are counted, and the wire is taken to
carry a gigabit a second. `first` is a machine's first shard, to which all files have to go; `later` one that has the
world and the base policy, and is sent the next checkpoint.
"""

import argparse
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from result_file import write_result
from stages_in_process import temporary_project

from flows.dag.stage_code import InUse, code_version
from flows.dag.stages import find_stage
from flows.params_file import params_of
from flows.workers.content_cache import ContentCache
from flows.workers.environment import environment
from flows.workers.needed_folders import NeededFolder, folders_in
from flows.workers.remote_task import CODE, RemoteTask
from tasks.collect_rollouts import collect_rollouts
from tasks.core.config.stage_inputs import CollectionInputs
from tasks.core.interfaces.stage import ProcessCache, StageContext

KEY = "i001"
WIRE_BYTES_PER_S = 1e9 / 8


class Measured:
    """Plays shards in this process, and measures what it would take to send them."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self.each: list[dict[str, float]] = []

    def places(self, context: StageContext[Any]) -> int:
        return self._shards

    def map(self, work: Callable[..., Any], context: StageContext[Any], items: Sequence[Any]) -> list[Any]:
        return [self._played(work, context, item) for item in items]

    def _played(self, work: Callable[..., Any], context: StageContext[Any], item: Any) -> Any:
        stage, layout, folder = find_stage("collect_rollouts"), context.layout, Path.cwd()
        code = code_version(stage, CODE, InUse.by(context.inputs))
        paths = folders_in(layout.world, layout.base_policy, item)
        begun = time.perf_counter()
        needs = tuple(NeededFolder.of(path) for path in paths)
        task = RemoteTask(
            stage.name, work, item, layout, context.inputs, KEY, folder, code, needs, environment(), cache_bytes=1e12
        )
        question = pickle.dumps(pickle.loads(pickle.dumps(task)))
        sent_s = time.perf_counter() - begun
        begun = time.perf_counter()
        played = work(context, item)
        played_s = time.perf_counter() - begun
        begun = time.perf_counter()
        answer = pickle.dumps(played)
        pickle.loads(answer)
        returned_s = time.perf_counter() - begun
        checkpoint = [need for need in needs if need.path not in (layout.world, layout.base_policy)]
        self.each.append(
            {
                "rollouts": len(item),
                "played_s": played_s,
                "message_bytes": len(question) + len(answer),
                "message_s": sent_s + returned_s + (len(question) + len(answer)) / WIRE_BYTES_PER_S,
                **{f"first_{name}": value for name, value in fetched(needs).items()},
                **{f"later_{name}": value for name, value in fetched(checkpoint).items()},
            }
        )
        return played


def fetched(needs: Sequence[NeededFolder]) -> dict[str, float]:
    """Return what it takes to bring folders into an empty cache, each file in pieces, compared with its digest."""
    paths = {sha256: need.path / name for need in needs for name, sha256 in need.files}
    folder = Path(tempfile.mkdtemp())
    begun = time.perf_counter()
    places = {folder / "project" / str(number): need.files for number, need in enumerate(needs)}
    sent = {sha256: (lambda start, path=path: iter([path.read_bytes()[start:]])) for sha256, path in paths.items()}
    assert ContentCache(folder, 1e12).place(places, sent) == []
    seconds, size = time.perf_counter() - begun, sum(path.stat().st_size for path in paths.values())
    shutil.rmtree(folder)
    return {"bytes": size, "s": seconds + size / WIRE_BYTES_PER_S}


def main() -> None:
    """Play one iteration in shards, and write what sending took against playing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("profile", nargs="?", default="default")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parsed = parser.parse_args()
    params = params_of(parsed.profile, [*parsed.settings, f"collection.shards={parsed.shards}"])
    measured = Measured(parsed.shards)
    with temporary_project(params) as project:
        project.prepare()
        cache = ProcessCache()
        collect_rollouts(StageContext(project.layout, CollectionInputs.of(params), KEY, cache, measured))
        cache.close()
    played = sum(shard["played_s"] for shard in measured.each)
    share = {
        kind: round(100 * sum(shard["message_s"] + shard[f"{kind}_s"] for shard in measured.each) / played, 2)
        for kind in ("first", "later")
    }
    each = [{name: round(value, 4) for name, value in shard.items()} for shard in measured.each]
    write_result("shard_sending", {"profile": parsed.profile, "percent_of_playing": share, "shards": each})


if __name__ == "__main__":
    main()
