"""A file that is fetched over a slow link goes on where the link was cut, and where the command was ended."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.hosts.network import Host, Network
from tests.hosts.parts import MOST_S, finished, join, lines_of, make_update, start_update

pytestmark = pytest.mark.hosts
SIZE = 24 * 2**20
RECEIVED = "root/.cache/loopline/received/files"


def arrived(host: Host, size: int, pipeline: "subprocess.Popen[str]") -> None:
    """Wait until so many bytes of the large file lie on the host."""
    folder, deadline = Path(f"/proc/{host.holder}/root") / RECEIVED, time.monotonic() + MOST_S
    while max((file.stat().st_size for file in folder.glob("*.part")), default=0) < size:
        assert pipeline.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


def test_a_file_goes_on_where_the_link_was_cut_and_where_the_command_was_ended(
    network: Network, tmp_path: Path
) -> None:
    layout = make_update(tmp_path / "project")
    (layout.base_policy / "large").write_bytes(os.urandom(SIZE))
    a, b = network.host("a", shared=[layout.root]), network.host("b")
    b.slow("16mbit")
    pipeline, ended = start_update(a, layout), join(b)
    arrived(b, SIZE // 4, pipeline)
    b.end(ended)
    joiner = join(b)
    arrived(b, SIZE // 2, pipeline)
    b.cut()
    assert joiner.stderr is not None
    cut = next(line for line in joiner.stderr if "10.77.0.1:29400: " in line)
    b.mend()
    code, said = finished(pipeline)
    assert code == 0, said
    assert SIZE < b.sent < 1.4 * SIZE
    gone = [line for line in lines_of(said) if "host b (10.77.0.2) is gone: " in line]
    assert len(gone) == 2 and "update_policy@i001: training on a, b (10.77.0.2)" in said
    assert "a file stopped coming (timed out); what came is kept" in cut and "update_policy@i001: done" in b.end(joiner)
