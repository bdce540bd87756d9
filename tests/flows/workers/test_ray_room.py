"""What is said while no machine of a Ray cluster holds a worker, and what is refused on a machine."""

from pathlib import Path
from typing import Any

import pytest

from flows.errors import StageFailed
from flows.workers import remote_task
from flows.workers.ray_room import ClusterUnavailable, Room, shards_on, workers_on
from flows.workers.remote_task import RemoteTask, difference, environment, run_remote
from tasks.core.config.machines import RayConfig
from tasks.core.config.params import parse_params
from tasks.core.config.stage_inputs import CollectionInputs
from tasks.core.records.layout import Layout
from tests.flows.workers.pieces import Piece, doubled


def node(name: str, *, alive: bool = True, **held: float) -> dict[str, Any]:
    address = f"10.0.0.{ord(name) - ord('a')}"
    who = {"NodeID": f"id_{name}", "NodeManagerHostname": name, "NodeManagerAddress": address}
    return {**who, "Alive": alive, "Resources": held}


def test_what_workers_take_of_a_machine_are_its_shards() -> None:
    """Two CPUs for each worker; c's machine was lost, and d is too small."""
    nodes = [node(name, alive=name != "c", CPU=held) for name, held in zip("abcd", (4, 6, 4, 1), strict=True)]
    free = {"id_a": {"CPU": 4.0}, "id_b": {"CPU": 2.0}, "id_d": {"CPU": 1.0}}
    assert shards_on(nodes, free, RayConfig(cpus_per_worker=2)) == {
        "a (10.0.0.0)": "plays 0 shards, has room for 2",
        "b (10.0.0.1)": "plays 2 shards, has room for 3",
    }


class Watched:
    """A room whose clock is set by hand, and what it said."""

    def __init__(self, config: RayConfig) -> None:
        self.said: list[str] = []
        self.now = 0.0
        self._room = Room(config, say=self.said.append, clock=lambda: self.now)

    def at(self, seconds: float, *nodes: dict[str, Any]) -> bool:
        self.now = seconds
        return self._room.look(nodes)


def test_a_lost_machine_is_named_at_once_and_each_minute_until_another_comes() -> None:
    watched, b = Watched(RayConfig(wait_s=600)), node("b", CPU=2)
    assert watched.at(0, node("a"), b) and watched.said == []
    b["Alive"] = False
    assert not any(watched.at(seconds, node("a"), b) for seconds in (5, 30, 64, 66, 120))
    assert len(watched.said) == 2
    assert "a worker needs 1 CPUs and 0 GPUs" in watched.said[0]
    assert "b (10.0.0.1): lost, a (10.0.0.0): 0 CPUs and 0 GPUs" in watched.said[0]
    assert "`ray start --address`" in watched.said[0] and watched.said[0].endswith("Waiting: 0 s of 10 min 0 s")
    assert watched.said[1].endswith("Waiting: 1 min 1 s of 10 min 0 s")
    assert watched.at(125, node("a"), b, node("c", CPU=1))
    assert watched.said[2:] == ["machines.ray: going on with c (10.0.0.2), 2 min 0 s later"]


def test_after_the_limit_there_is_one_message_and_the_wait_begins_anew_after_a_machine_was_there() -> None:
    watched = Watched(RayConfig(wait_s=90))
    assert not watched.at(0) and watched.at(60, node("b", CPU=1))
    assert not watched.at(100) and not watched.at(189)
    with pytest.raises(ClusterUnavailable, match=r"no machine has them \(there are none\).* Nothing is lost"):
        watched.at(190)


def test_too_few_gpus_are_told_with_the_knob() -> None:
    watched = Watched(RayConfig(gpus_per_worker=2))
    assert not watched.at(0, node("b", CPU=8, GPU=1))
    assert "b (10.0.0.1): 8 CPUs and 1 GPUs" in watched.said[0] and "machines.ray.gpus_per_worker" in watched.said[0]
    assert workers_on(node("c", CPU=8, GPU=5), RayConfig(gpus_per_worker=2)) == 2
    assert workers_on(node("c", alive=False, CPU=8, GPU=5), RayConfig(gpus_per_worker=2)) == 0


def test_too_few_machines_for_an_update_are_told_with_what_each_has() -> None:
    said: list[str] = []
    room = Room(RayConfig(cpus_per_worker=2), 2, said.append)
    assert not room.look([node("a", CPU=2), node("b", CPU=1)])
    assert "an update needs 2 machines with 2 CPUs and 0 GPUs each (a (10.0.0.0): 2 CPUs and 0 GPUs, b" in said[0]
    assert room.look([node("a", CPU=2), node("b", CPU=2)])


def test_a_dead_workers_machine_is_the_noted_one_or_that_in_the_message_or_the_only_one() -> None:
    room, nodes = Room(RayConfig()), [node("a"), node("b", CPU=1), node("c", alive=False)]
    assert room.where(nodes, "", "The node 10.0.0.2 died") == " on c (10.0.0.2)"
    assert room.where(nodes, "", "The node 10.0.0.21 died") == room.where(nodes, "", "died") == " on b (10.0.0.1)"
    assert room.where([*nodes, node("d", CPU=1)], "", "died") == ""
    assert room.where([*nodes, node("d", CPU=1)], "id_d", "died") == " on d (10.0.0.3)"


def test_the_first_other_version_is_named_and_a_build_is_none() -> None:
    ours = {"Python": "3.11.7", "torch": "2.9.1+cpu", "transformers": "5.23.0"}
    assert difference({**ours, "torch": "2.9.1+cu128"}, ours) is None
    assert difference({**ours, "transformers": "5.20.0"}, ours) == "transformers 5.20.0, the pipeline has 5.23.0"
    assert difference({"Python": "3.11.7"}, ours) == "torch none, the pipeline has 2.9.1+cpu"


def task(folder: Path, **changes: Any) -> RemoteTask:
    inputs = CollectionInputs.of(parse_params({"iterations": 1}, "test"))
    content = {"environment": environment(), "code": "its code"} | changes
    return RemoteTask("collect_rollouts", doubled, Piece(1), Layout(folder), inputs, "i001", folder, **content)


def test_another_environment_is_refused_by_the_hosts_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_task.socket, "gethostname", lambda: "b")
    with pytest.raises(StageFailed, match=r"host b: torch [\d.]+\S*, the pipeline has 1\.0"):
        run_remote(task(tmp_path, environment=environment() | {"torch": "1.0"}))
    with pytest.raises(StageFailed, match=r"host b: collect_rollouts: the code in .* is not the pipeline's"):
        run_remote(task(tmp_path))
