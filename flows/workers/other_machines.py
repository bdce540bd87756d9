"""The machines that join the updates of a stage. What they do: worker_node.py."""

from collections.abc import Iterator
from contextlib import contextmanager

from flows.hosts_at_work import shown_hosts
from flows.workers.gathering import Gathering
from flows.workers.join_server import served
from tasks.core.interfaces.machines import Meeting
from tasks.core.learner.rendezvous import own_address
from tasks.core.learner.update_job import UpdateJob


class OtherMachines:
    """The machines of the updates of one stage, this one and those that join.

    The pipeline's machine serves an update while it gathers and trains, at `update.distributed.rendezvous`; between two
    updates nobody listens there.
    """

    def __init__(self, label: str, cache_bytes: float) -> None:
        """`label`: the stage; `cache_bytes`: the most that a machine keeps of what it is sent."""
        self._label, self._cache_bytes = label, cache_bytes

    @contextmanager
    def meet(self, job: UpdateJob) -> Iterator[Meeting]:
        """Yield the meeting of all machines of `job`, once they are there with all files.

        Raises RankFailed where they are not in half an hour, and ParamsError for a rendezvous that is no address of
        this machine or is in use.
        """
        settings = job.inputs.update.distributed
        assert settings.rendezvous is not None, "several machines have a place to meet"
        address = own_address(settings.rendezvous, holds_store=True)
        gathering = Gathering(self._label, job, address, self._cache_bytes)
        with served(gathering, settings.rendezvous, address), shown_hosts() as shown:
            reason: str | None = f"{self._label}: stopped on the pipeline's machine"
            try:
                gathering.wait()
                shown.show(gathering.work())
                yield gathering
                reason = None
            except Exception as error:
                reason = str(error)
                raise
            finally:
                gathering.end(reason)
