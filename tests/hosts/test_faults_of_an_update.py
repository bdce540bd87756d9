"""Faults of an update on hosts: one line on each side, nothing half-written, and the next update has the same bytes."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from flows.workers import gathering
from flows.workers.join_channel import SECRET_VARIABLE, SILENCE_S
from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tests.flows.tiny_project import ROOT
from tests.hosts.network import Host, Network
from tests.hosts.parts import (
    RENDEZVOUS,
    finished,
    inside,
    join,
    lines_of,
    make_update,
    on_one_host,
    rank_on,
    start_update,
    trains_on,
)

pytestmark = pytest.mark.hosts
AGAIN = "; nothing was saved, run the same command again"
LABEL = "update_policy@i001"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_update(tmp_path / "project")


@pytest.fixture
def hosts(network: Network, layout: Layout) -> tuple[Host, Host]:
    """Return the pipeline's host, which has the project, and another one."""
    return network.host("a", shared=[layout.root]), network.host("b")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the digest of the policy that as many ranks of one host train."""
    return on_one_host(tmp_path_factory.mktemp("one"), 2)


def trained(layout: Layout, a: Host) -> str:
    """Return the digest of the policy that an update comes to; the joiner waits."""
    code, said = finished(start_update(a, layout))
    assert code == 0, said
    found = digest(layout.policy("i001"))
    shutil.rmtree(layout.policy("i001"))
    layout.metrics("i001").unlink()
    return found


def nothing_written(layout: Layout) -> bool:
    return sorted(file.name for file in layout.iteration("i001").iterdir()) == [
        "advantages.json",
        "training_batch.parquet",
    ]


def test_hosts_that_are_lost_are_named_on_each_side_and_the_next_update_has_the_same_bytes(
    layout: Layout, hosts: tuple[Host, Host], expected: str
) -> None:
    a, b = hosts
    joiner = join(b)

    pipeline = start_update(a, layout)  # a rank there
    os.kill(trains_on(b, pipeline), signal.SIGKILL)
    code, said = finished(pipeline)
    killed = f"{LABEL}: host b (10.77.0.2): rank 1 of 2 was killed by SIGKILL (the system kills processes when"
    assert code == 1 and killed in said and AGAIN in said and "Traceback" not in said
    assert nothing_written(layout)

    pipeline = start_update(a, layout)  # a rank here
    trains_on(b, pipeline)
    os.kill(rank_on(a) or 0, signal.SIGKILL)
    code, said = finished(pipeline)
    assert code == 1 and f"{LABEL}: rank 0 of 2 was killed by SIGKILL" in said
    assert nothing_written(layout)

    pipeline = start_update(a, layout)  # the link
    trains_on(b, pipeline)
    b.cut()
    began = time.monotonic()
    code, said = finished(pipeline)
    assert time.monotonic() - began < 2 * SILENCE_S
    lost = f"{LABEL}: host b (10.77.0.2): no sign of life for 30 s: the machine is down, or its link is cut{AGAIN}"
    assert code == 1 and lines_of(said)[-1] == lost and nothing_written(layout)
    b.mend()

    pipeline = start_update(a, layout)  # the pipeline's processes
    trains_on(b, pipeline)
    for process in inside(a):
        if process.pid != a.holder:
            process.kill()
    pipeline.communicate()
    no_answer = f"{RENDEZVOUS}: no answer for 30 s: the pipeline has ended, or the link is cut"
    before = "".join(_until(joiner, no_answer) for _ in range(2))

    assert trained(layout, a) == expected
    told = lines_of(before + b.end(joiner))
    assert [line for line in told if "joining" not in line] == [
        f"waiting for updates of {RENDEZVOUS}",
        f"{LABEL}: rank 1 of 2 was killed by SIGKILL (the system kills processes when memory runs out){AGAIN}",
        f"{LABEL}: rank 0 of 2 was killed by SIGKILL (the system kills processes when memory runs out)",
        no_answer,
        no_answer,
        f"{LABEL}: done",
    ]


def test_a_host_that_dies_is_named_and_another_one_takes_its_place(
    layout: Layout, hosts: tuple[Host, Host], network: Network
) -> None:
    a, b = hosts
    joiner = join(b)
    pipeline = start_update(a, layout)
    trains_on(b, pipeline)
    c = network.host("c")
    spare = join(c)
    said = _until(spare, "has its 2 machines")
    assert f"{LABEL} has its 2 machines (a, b (10.77.0.2)); this one waits for a later update" in said
    os.kill(b.holder, signal.SIGKILL)  # and with it every process of the host
    code, said = finished(pipeline)
    assert code == 1 and f"{LABEL}: host b (10.77.0.2): no sign of life for 30 s" in said
    assert f"{LABEL}: c (10.77.0.3) came, too; update.distributed.nodes is 2 (a, b (10.77.0.2))" in said
    joiner.communicate()
    code, said = finished(start_update(a, layout))
    assert code == 0 and f"{LABEL}: training on a, c (10.77.0.3)" in said
    assert f"{LABEL}: done" in c.end(spare)


def _until(process: "subprocess.Popen[str]", words: str) -> str:
    """Return what a process says up to the line with these words, as soon as that comes."""
    assert process.stderr is not None
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def test_machines_that_do_not_belong_are_refused_by_name(layout: Layout, network: Network, tmp_path: Path) -> None:
    versions, code = tmp_path / "versions", tmp_path / "code"
    (versions / "transformers-4.1.dist-info").mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: transformers\nVersion: 4.1\n"
    (versions / "transformers-4.1.dist-info" / "METADATA").write_text(metadata)
    for name in ("flows", "tasks"):
        shutil.copytree(ROOT / name, code / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (code / "tasks" / "core" / "learner" / "objective.py").open("a") as file:
        file.write("# another commit\n")
    a, b = network.host("a", shared=[layout.root]), network.host("b", shared=[versions, code])
    pipeline = start_update(a, layout)
    for variables, reason in (
        ({"PYTHONPATH": f"{versions}{os.pathsep}{ROOT}"}, "host b: transformers 4.1, the pipeline has 5."),
        ({"PYTHONPATH": str(code)}, "host b: its code of the learner is not the pipeline's; bring both to the same"),
        ({SECRET_VARIABLE: "of others"}, "the secret is another one: copy /root/.config/loopline/join_secret"),
    ):
        exit_code, told = finished(join(b, **variables))
        assert exit_code == 1 and reason in told and "Traceback" not in told
        assert len(lines_of(told)) == 2  # that it waits, and why not
    time.sleep(gathering._SOON_S)  # after which the pipeline says what it waits for
    joiner = join(b)
    exit_code, said = finished(pipeline)
    assert exit_code == 0, said
    assert f"{LABEL}: refused: host b: transformers 4.1, the pipeline has 5." in said
    assert f"{LABEL}: refused: host b: its code of the learner is not the pipeline's" in said
    assert f"{LABEL}: 1 more machines needed (here: none); run `loopline join {RENDEZVOUS}` there" in said
    assert f"{LABEL}: done" in b.end(joiner)


def test_a_link_that_is_cut_for_a_moment_or_slow_changes_no_byte(
    layout: Layout, hosts: tuple[Host, Host], expected: str
) -> None:
    a, b = hosts
    joiner = join(b)
    b.slow("1mbit")
    pipeline = start_update(a, layout)
    trains_on(b, pipeline)
    b.cut()
    time.sleep(SILENCE_S / 3)
    b.mend()
    code, said = finished(pipeline)
    assert code == 0, said
    assert digest(layout.policy("i001")) == expected
    b.end(joiner)


def test_files_are_sent_once_and_a_damaged_one_is_fetched_again(
    layout: Layout, hosts: tuple[Host, Host], expected: str
) -> None:
    a, b = hosts
    joiner = join(b)
    assert trained(layout, a) == expected
    files = b.run(Path("/root/.cache/loopline/received/files"), "sh", "-c", "ls; stat -c %i *")
    assert trained(layout, a) == expected
    assert b.run(Path("/root/.cache/loopline/received/files"), "sh", "-c", "ls; stat -c %i *") == files
    b.end(joiner)
    needed = [layout.base_policy, layout.policy("i000"), layout.training_batch("i001")]
    paths = [file for path in needed for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    assert {digest(file) for file in paths} <= set(files.split())
    weights = digest(layout.base_policy / "model.safetensors")
    b.run(Path("/root/.cache/loopline/received/files"), "sh", "-c", f"echo spoilt > {weights}")
    joiner = join(b)
    assert trained(layout, a) == expected
    assert f"{weights}: damaged; it is fetched again" in b.end(joiner)
