"""Files as the pipeline's machine sends them, over a real connection."""

import time
from collections.abc import Iterator

import pytest

from flows.dag.stage_code import module_version
from flows.workers.environment import environment
from flows.workers.gathering import CODE, Gathering
from flows.workers.join_channel import PIECE_BYTES, SECRET_VARIABLE, Channel, Coming, Offer, PipelineLost
from flows.workers.join_server import served
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import UpdateInputs
from tasks.core.interfaces.machines import free_port
from tasks.core.learner.launcher import RANK_MODULE
from tasks.core.learner.update_job import UpdateJob
from tasks.core.records.files import digest
from tests.hosts.parts import make_update

LARGE = 64 * 2**20
"""Bytes: more than any connection's buffers hold."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> UpdateJob:
    layout = make_update(tmp_path_factory.mktemp("sent") / "project")
    params = Params.model_validate_json((layout.root / "params.json").read_text())
    with (layout.base_policy / "large").open("wb") as file:
        file.truncate(LARGE)
    return UpdateJob(root=layout.root, key="i001", inputs=UpdateInputs.of(params))


@pytest.fixture
def gathering(job: UpdateJob) -> Gathering:
    return Gathering("update_policy@i001", job, "127.0.0.1", 1e9)


@pytest.fixture
def joined(gathering: Gathering, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Channel, Offer]]:
    """Yield another machine's channel, and the place that it has."""
    monkeypatch.setenv(SECRET_VARIABLE, "of these two")
    port = free_port()
    with served(gathering, f"localhost:{port}", "127.0.0.1"):
        channel = Channel("127.0.0.1", port, "of these two")
        coming = Coming(host="b", environment=environment(), code=module_version(RANK_MODULE, CODE))
        yield channel, channel.join(coming)


def test_a_file_is_sent_from_any_byte_on(job: UpdateJob, joined: tuple[Channel, Offer]) -> None:
    file, channel = job.layout.base_policy / "config.json", joined[0]
    content = file.read_bytes()
    for start in (0, 1, len(content) - 1, len(content), len(content) + 1):
        assert b"".join(channel.file(digest(file), start)) == content[start:]


def test_a_machine_is_heard_while_it_takes_a_file_and_one_that_lost_its_place_gets_no_more(
    job: UpdateJob, gathering: Gathering, joined: tuple[Channel, Offer]
) -> None:
    channel, offer = joined
    guest = gathering.hear(offer.session)
    assert guest is not None
    pieces = channel.file(digest(job.layout.base_policy / "large"), 0)
    next(pieces)
    began = time.monotonic()
    for _ in range(LARGE // 2 // PIECE_BYTES):
        next(pieces)
    assert guest.heard_at > began
    gathering.fail(guest, "stopped")
    with pytest.raises(PipelineLost, match=r"more expected"):
        list(pieces)
