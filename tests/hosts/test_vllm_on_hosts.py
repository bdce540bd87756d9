"""vLLM's servers on a host that shares no folder with the pipeline, started there by Ray's workers."""

import sys
from pathlib import Path

import pytest
from pyarrow.parquet import read_table

from tasks.core.engines.vllm.interpreter import VLLM_CPU
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.policies.checkpoint_files import OPTIMIZER, policy_digest
from tasks.core.records.files import digest, read_json
from tasks.core.records.layout import Layout
from tests.flows.tiny_project import ROOT, configure, environment, make_project, succeed
from tests.hosts.network import Network
from tests.hosts.parts import ADDRESS, ON_HOSTS, finished, head, member

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(1800)]
RUN = ("-m", "flows.cli", "run", "--without-prefect", "--until")


def test_rays_workers_start_servers_of_their_own_with_all_the_weights_that_were_sent(
    network: Network, tmp_path: Path
) -> None:
    python_executable(ROOT / INTERPRETERS, VLLM_CPU)  # a host has no network to make it
    project = make_project(tmp_path / "project", "engine.name=vllm", "iterations=2")
    succeed(project, *RUN, "filter_tasks")
    settings = ("policy.trained=full", f"machines.ray.address='{ADDRESS}'", "collection.shards=2")
    configure(project, "--refresh", *settings)
    a, b = network.host("a", shared=[project]), network.host("b")
    head(a, 0)
    member(b)
    run = a.start(project, sys.executable, *RUN, "collect_rollouts@i002", **environment(project, **ON_HOSTS))
    code, said = finished(run)
    assert code == 0, said
    (proof,) = read_json(Layout(project).timings("i002"))["deliveries"][-1:]
    assert "i001" in proof["policy"] and {one["verdict"] for one in proof["comparisons"]} == {"delivered"}
    received = b.run(Path("/root"), "find", ".cache/loopline/received/files", "-type", "f").split()
    policy, names = Layout(project).policy("i001"), {Path(name).name for name in received}
    assert policy_digest(policy) in names and digest(policy / OPTIMIZER) not in names
    assert "vllm" in set(read_table(Layout(project).rollouts("i001"), columns=["engine"])["engine"].to_pylist())
