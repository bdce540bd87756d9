"""An experiment of the whole pipeline in miniature: names and numbers agree, its lineage holds, others can pull it."""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.cli.app import main
from flows.experiments.hydra_plugins.derived_dag import _require_one_reading
from flows.params_file import parse_assignment
from tasks.core.config.params import ParamsError, load_params
from tasks.core.processes.addresses import free_port
from tests.flows.tiny_project import ROOT, configure, copy_project, run, succeed

SMALLER = ("-S", "iterations=1", "-S", "update.learning_rate=0.002")


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def finished(finished_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a git repository after an experiment that changed the number of iterations and the learning rate."""
    folder = copy_project(finished_project, tmp_path_factory.mktemp("experiments") / "project")
    for name in (".dvc/config", ".dvc/.gitignore"):
        shutil.copy2(ROOT / name, folder / name)
    configure(folder, "--refresh", "iterations=2")
    git(folder, "init", "-q")
    git(folder, "config", "user.name", "t")
    git(folder, "config", "user.email", "t@t")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "project")
    succeed(folder, "-m", "dvc", "exp", "run", "-n", "tiny-one", *SMALLER)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "tiny-one")
    return folder


def test_composing_changes_what_is_asked_for_and_what_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning of `dvc exp run`, before it runs, by DVC's own function."""
    before = yaml.safe_load((ROOT / "params.yaml").read_text())
    assert yaml.safe_load(compose(tmp_path / "params.yaml")) == before
    monkeypatch.chdir(tmp_path)
    fewer = [
        "iterations=3",
        "evaluation.every=2",
        "collection.staleness=1",
        "update.learning_rate=0.001",
        "monitor.action=stop",
    ]
    tree = "collection.tree={simulations:4,candidates:2}"
    searching = [tree, "advantages.pair_gap=0.1", "update.objective=preference"]
    elsewhere = ["policy.source=bases/x", "world.name=webshop", "+world.webshop={source:original,root:w}"]
    for changes in (fewer, searching, elsewhere):
        compose(tmp_path / "changed.yaml", *changes)
        written = [word for change in changes for word in ("--set", change.replace(":", ": ").removeprefix("+"))]
        assert main(["configure", "default", *written]) == 0
        assert load_params(tmp_path / "changed.yaml") == load_params(tmp_path / "params.yaml")


def test_an_impossible_counted_knob_is_named(tmp_path: Path) -> None:
    changes = {"iterations": "3.0", "evaluation.every": "0", "collection.staleness": "-1"}
    for knob, value in {**changes, "collection.every": "null"}.items():
        given = value.replace("null", "None")
        with pytest.raises(AssertionError, match=rf"{knob}: Input should be .*, not '?{given}'?"):
            compose(tmp_path / "params.yaml", f"{knob}={value}")


def test_a_number_that_hydra_reads_otherwise_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text((ROOT / "params.yaml").read_text().replace("\nseed: 0 ", "\nseed: 010 "))
    with pytest.raises(ParamsError, match="seed: DVC reads 10, Hydra 8; write what both read"):
        _require_one_reading(path)


def compose(target: Path, *overrides: str) -> bytes:
    experiments = str(ROOT / "flows" / "experiments")
    code = "import sys; from dvc.utils.hydra import compose_and_dump as c; c(sys.argv[1], *eval(sys.argv[2]))"
    arguments = (experiments, None, "config", experiments, list(overrides))
    succeed(ROOT, "-c", code, str(target), repr(arguments))
    return target.read_bytes()


@pytest.mark.services
def test_experiments_and_mlflow_agree_on_names_and_numbers(finished: Path) -> None:
    params = yaml.safe_load((finished / "params.yaml").read_text())
    assert (params["iterations"], list(params["dag"]["previous"])) == (1, ["i001"])
    assert params["dag"]["evaluated"] == ["i000", "i001"]
    assert (
        parse_assignment("update.learning_rate=0.002")["update"]["learning_rate"] == params["update"]["learning_rate"]
    )
    (run,) = runs(finished)
    assert (run.info.run_name, run.data.tags["dvc_experiment"]) == ("tiny-one", "tiny-one")
    assert run.data.params["update.learning_rate"] == "0.002"
    shown = shown_experiment(finished, "tiny-one")
    for split in ("test_normal", "test_challenge"):
        scores = shown["metrics"][f"data/summary/{split}.json"]["data"]
        assert {"tgc", "sgc"} <= scores.keys()
        for name in ("tgc", "sgc", "tgc_gain"):
            assert run.data.metrics[f"{split}/{name}"] == scores[name]
    assert shown["params"]["params.yaml"]["data"]["update"]["learning_rate"] == 0.002


def runs(folder: Path) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    return list(client.search_runs([experiment.experiment_id for experiment in client.search_experiments()]))


def shown_experiment(folder: Path, name: str) -> dict[str, Any]:
    """Return one experiment, as `dvc exp show` prints it."""
    listing = json.loads(succeed(folder, "-m", "dvc", "exp", "show", "--json", "-n", "2"))
    revisions = [rev for base in listing for part in base.get("experiments") or [] for rev in part["revs"]]
    experiment: dict[str, Any] = next(rev["data"] for rev in revisions if rev["name"] == name)
    return experiment


@pytest.mark.services
def test_lineage_holds_until_something_is_broken_which_it_names(finished: Path) -> None:
    answer = succeed(finished, "-m", "flows.cli", "lineage", "test_normal/tgc")
    assert answer.splitlines()[-1] == "every link holds"
    for expected in ("<- score@test_normal", "<- collect_rollouts@i001", "<- data/base_policies", "i001: seeds "):
        assert expected in answer
    for side in ("data/report", "data/learning_curves.csv", "data/lineage.json"):
        answer = succeed(finished, "-m", "flows.cli", "lineage", side)
        assert answer.splitlines()[-1] == "every link holds" and "\ncode: commit " in answer
    lock = yaml.safe_load((finished / "dvc.lock").read_text())["stages"]["collect_rollouts@i001"]
    md5 = next(out["md5"] for out in lock["outs"] if out["path"].endswith("rollouts.parquet"))
    cached = finished / ".dvc" / "cache" / "files" / "md5" / md5[:2] / md5[2:]
    whole = cached.read_bytes()
    replace(cached, b"rotten")
    try:
        done = run(finished, "-m", "flows.cli", "lineage", "i001")
        assert done.returncode == 1
        assert f"BROKEN: data/iterations/i001/rollouts.parquet: its cache file {cached} is corrupt" in done.stdout
    finally:
        replace(cached, whole)
    assert run(finished, "-m", "flows.cli", "lineage", "i099").returncode == 2
    assert run(finished, "-m", "flows.cli", "lineage", "nowhere.tgc").returncode == 2


def replace(path: Path, content: bytes) -> None:
    """Put a new file in place of a read-only file that may be linked to the artifact."""
    path.unlink()
    path.write_bytes(content)


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[str]:
    """Run a real S3-compatible server with an empty bucket `loopline`; yield its address."""
    import boto3

    port = free_port()
    with (tmp_path / "s3.log").open("w") as log:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=log, stderr=log)
    try:
        _wait_for_port(port, server)
        address = f"http://127.0.0.1:{port}"
        boto3.client("s3", endpoint_url=address, region_name="us-east-1", **KEYS).create_bucket(Bucket="loopline")
        yield address
    finally:
        server.terminate()
        server.wait(30)


KEYS = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}


def _wait_for_port(port: int, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the S3 server did not start")


@pytest.mark.services
@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_a_fresh_clone_pulls_and_has_nothing_to_do(
    finished: Path, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    settings = {name.upper(): value for name, value in KEYS.items()} | {"AWS_DEFAULT_REGION": "us-east-1"}
    address = request.getfixturevalue("s3") if kind == "s3" else None
    place = "s3://loopline/store" if address else str(tmp_path / "store")
    add_remote(finished, place, address)
    succeed(finished, "-m", "dvc", "push", "-q", **settings)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(finished), str(clone))
    add_remote(clone, place, address)
    succeed(clone, "-m", "dvc", "pull", "-q", **settings)
    before = (clone / "dvc.lock").read_bytes()
    assert "Data and pipelines are up to date." in succeed(clone, "-m", "dvc", "repro")
    assert (clone / "dvc.lock").read_bytes() == before
    assert succeed(clone, "-m", "flows.cli", "lineage", "selected").splitlines()[-1] == "every link holds"


def add_remote(folder: Path, place: str, endpoint: str | None) -> None:
    succeed(folder, "-m", "dvc", "remote", "add", "--local", "-d", "-f", "store", place)
    if endpoint:
        succeed(folder, "-m", "dvc", "remote", "modify", "--local", "store", "endpointurl", endpoint)
