"""One rank of an update on several: its start, training with the others, and what it leaves of an error.

    torchrun ... -m tasks.core.learner.ranks JOB      (or accelerate launch --multi_gpu ..., which calls it)

JOB is the update as JSON. The main rank writes policy and metrics next to it. launcher.py starts ranks. Those of
several machines are actors of Ray (flows/workers/ray_ranks.py), which do `meeting_point` and `train_rank`.
"""

import os
import signal
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.learner.checkpoint import save_learner
from tasks.core.learner.distributed import ProcessGroup, join_process_group
from tasks.core.learner.launcher import EXPECTED, METRICS, PASSES, POLICY, TIMINGS
from tasks.core.learner.metrics import trained_metrics, update_timings
from tasks.core.learner.training import read_batch, train
from tasks.core.learner.update_job import UpdateJob
from tasks.core.policies.loading import device
from tasks.core.processes.addresses import free_port
from tasks.core.processes.resources import CORES_VARIABLE, spare_old_objects
from tasks.core.processes.running import parent_death_signal
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import write_json
from tasks.core.records.training import AdvantageSummary


def main(arguments: list[str]) -> int:
    """Join the other ranks, train, write. Leave any error in torchrun's error file, from which the stage reports it."""
    _die_with_the_launcher()
    spare_old_objects()
    file = Path(arguments[0])
    errors = get_error_handler()
    errors.initialize()
    try:
        job = UpdateJob.model_validate_json(file.read_text(encoding="utf-8"))
        with join_process_group(device(job.inputs.policy)) as group:
            run_rank(job, group, file.parent)
    except Exception as error:
        errors.record_exception(error)
        return EXPECTED if isinstance(error, ValueError) else 1
    return 0


def run_rank(job: UpdateJob, group: ProcessGroup, output: Path) -> None:
    """Train with the other ranks; the main rank writes policy, metrics.json and passes.json into `output`."""
    if not group.is_main:
        warnings.simplefilter("ignore")
    summary = read_document(job.layout.advantage_summary(job.previous.batch), AdvantageSummary)
    rollouts = read_batch(job)
    learner, stats, probe, passes = train(job, rollouts, ProcessCache(), group)
    save_learner(learner, output / POLICY, probe)
    if group.is_main:
        metrics = trained_metrics(rollouts, stats, learner, summary, job.inputs.update.loss, job.previous.staleness)
        write_document(output / METRICS, metrics)
        write_document(output / TIMINGS, update_timings(stats))
        write_json(output / PASSES, {"passes": passes})


@dataclass(frozen=True)
class RemoteRank:
    """One rank of an update on several machines. Can be pickled."""

    job: UpdateJob
    number: int
    address: str
    """The one of its machine, as the others reach it."""
    output: Path
    """Where the main rank writes, on the pipeline's machine."""
    main: tuple[str, int] = ("", 0)
    """Where the main rank's store listens."""

    def __len__(self) -> int:
        return 1

    @property
    def description(self) -> str:
        return f"rank {self.number} of {self.job.inputs.update.distributed.size}"


def meeting_point(context: StageContext[Any], rank: RemoteRank) -> tuple[str, int]:
    """Return where the others would meet this rank. Its files are here by then."""
    return rank.address, free_port()


def train_rank(context: StageContext[Any], rank: RemoteRank) -> None:
    """Train with the ranks of all machines."""
    job, distributed = rank.job.model_copy(update={"root": context.layout.root}), rank.job.inputs.update.distributed
    os.environ.pop(CORES_VARIABLE, None)  # an update has its machines to itself
    os.environ |= {"RANK": str(rank.number), "WORLD_SIZE": str(distributed.size)}
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(distributed.ranks)}  # Ray shows a rank its own GPU alone
    os.environ |= {"MASTER_ADDR": rank.main[0], "MASTER_PORT": str(rank.main[1])}
    _name_interface(rank.address)
    with join_process_group(device(job.inputs.policy)) as group:
        run_rank(job, group, rank.output)


def _name_interface(address: str) -> None:
    """Make gloo use the network interface of `address`, if the user has named none.

    By default it takes the one of the machine's own name, which may mean a loopback address (127.0.1.1 on Debian).
    """
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _die_with_the_launcher() -> None:
    """Make this rank end with the process that started it, however that ends (Linux; elsewhere rely on its signals)."""
    if sys.platform == "linux":
        parent_death_signal(signal.SIGKILL)()
        if os.getppid() == 1:
            os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
