"""A team's services, each on a host of its own, as docs/operations/team/compose.yaml and prefect.yaml start them."""

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tasks.core.records.layout import Layout
from tests.flows.tiny_project import ROOT, environment, make_project
from tests.hosts.network import Network, NoNamespaces

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(1200)]
TEAM = ROOT / "docs" / "operations" / "team"
COMPOSE: dict[str, Any] = yaml.safe_load((TEAM / "compose.yaml").read_text())
SETTINGS = {
    "POSTGRES_PASSWORD": "hunter2",
    "MLFLOW_ARTIFACTS": "/root/mlartifacts",
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any",
    "AWS_DEFAULT_REGION": "us-east-1",
}
DESK = {
    "MLFLOW_TRACKING_URI": "http://mlflow:5000",
    "PREFECT_API_URL": "http://prefect:4200/api",
    "PREFECT_HOME": "/root/.prefect",
    **{name: value for name, value in SETTINGS.items() if name.startswith("AWS_")},
}
WORKPLACE = Path("/root/workplace")
TOKENS = """if True:
    import hashlib, sys
    from pyarrow.parquet import read_table
    rows = read_table(sys.argv[1]).to_pylist()
    chosen = [row for row in rows if not sys.argv[2:] or row["policy"] == sys.argv[2]]
    print(*(f'{row["task_id"]}:{hashlib.sha256(str(row["token_ids"]).encode()).hexdigest()}' for row in chosen))"""
"""Print each rollout's task and the digest of its tokens; of one policy's, if a second argument names it."""
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


class Team:
    """Hosts with a service each, one for git, one with SSH, and the desk of somebody who works with them."""

    def __init__(self, network: Network, folder: Path, programs: Path) -> None:
        self._folder, self._programs = folder, programs
        self.project, self.public = folder / "project", folder / "public"
        self.public.mkdir()
        shared = {"desk": [self.project, self.public], "git": [self.public], "ssh": [self.public]}
        names = [*COMPOSE["services"], "git", "ssh", "desk"]
        self.hosts = {name: network.host(name, shared=shared.get(name, ())) for name in names}
        self._running: dict[str, subprocess.Popen[str]] = {}
        network.introduce()

    def start(self, service: str) -> None:
        """Start a service's command with its variables, as the compose file has them."""
        if service == "postgres":
            return self.begin(service, *NOBODY, f"{self._programs}/postgres", "-D", "/tmp/data", "-h*", "-k", "/tmp")
        told = COMPOSE["services"][service]
        variables = {name: filled(value) for name, value in told.get("environment", {}).items()}
        return self.begin(service, *map(filled, told["command"]), PREFECT_HOME="/root/.prefect", **variables)

    def begin(self, name: str, *command: str, **variables: str) -> None:
        """Start a command on the host of this name, for as long as the hosts last."""
        self._running[name] = self.hosts[name].serve(ROOT, self._log(name), *command, **variables)

    def stop(self, name: str) -> None:
        """Kill a host's command and all that it started; ask the database, whose files are locked by its process id."""
        for process in psutil.Process(self._running[name].pid).children(recursive=name != "postgres"):
            process.send_signal(signal.SIGINT if name == "postgres" else signal.SIGKILL)
        self._running[name].wait(30)

    def said(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")[-4000:]

    def make_databases(self) -> None:
        """Do what the image's entry point does: a cluster with this user and password, the database, the script."""
        told = {name: filled(value) for name, value in COMPOSE["services"]["postgres"]["environment"].items()}
        host, options = self.hosts["postgres"], "-D /tmp/data -A scram-sha-256 --pwfile=/tmp/password"
        setup = f"""set -e; cd /tmp; chmod 1777 /tmp; printf %s "$POSTGRES_PASSWORD" > password
            {" ".join(NOBODY)} {self._programs}/initdb {options} -U "$POSTGRES_USER"
            echo "host all all all scram-sha-256" >> data/pg_hba.conf"""
        said = host.run(Path("/"), "sh", "-c", setup, **told)
        assert "Success" in said, said
        self.start("postgres")
        user = ["-h", "127.0.0.1", "-U", told["POSTGRES_USER"], "-d", "postgres"]
        for script in (f"CREATE DATABASE {told['POSTGRES_DB']}", COMPOSE["configs"]["databases"]["content"]):
            ask = [f"{self._programs}/psql", *user, "-c", script]
            made = lambda ask=ask: "CREATE" in host.run(Path("/"), *ask, PGPASSWORD=told["POSTGRES_PASSWORD"])  # noqa: E731
            until(made, lambda: self.said("postgres"))

    def answers(self, service: str, url: str) -> None:
        """Wait until a URL answers on the desk."""
        ask = f"import urllib.request as r; print(r.build_opener(r.ProxyHandler({{}})).open({url!r}, timeout=9).status)"
        asked = [sys.executable, "-c", ask]
        until(lambda: "200\n" in self.hosts["desk"].run(Path("/"), *asked), lambda: self.said(service))

    def tried(self, *arguments: str, folder: Path | None = None, **variables: str) -> tuple[int, str]:
        """Run Python on the desk, in the project; return its exit code and what it said."""
        folder = folder or self.project
        told = environment(folder, **DESK, **variables)
        started = self.hosts["desk"].start(folder, sys.executable, *arguments, **told)
        stdout, stderr = started.communicate(timeout=400)
        return started.returncode, stdout + stderr

    def desk(self, *arguments: str, folder: Path | None = None, **variables: str) -> str:
        """Run Python on the desk, where it must succeed; return what it said."""
        code, said = self.tried(*arguments, folder=folder, **variables)
        assert code == 0, said
        return said

    def git(self, *arguments: str, folder: Path | None = None) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@t")
        started = self.hosts["desk"].start(folder or self.project, "git", *identity, *arguments)
        stdout, stderr = started.communicate(timeout=100)
        assert started.returncode == 0, stderr
        return stdout.strip()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def filled(text: str) -> str:
    """Return a text of the compose file with the variables that Compose would put in; fail for one that must be set."""

    def value(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        assert name in SETTINGS or kind == ":-", f"{name}: {rest}"
        return SETTINGS.get(name, rest)

    return re.sub(r"\$\{(\w+)(:-|:\?)([^}]*)\}", value, text)


def until(holds: Callable[[], Any], said: Callable[[], str], seconds: float = 240) -> Any:
    """Poll until something holds; what a service said is the reason where it never does."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, said()
        time.sleep(0.5)
    return found


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Start all services but the worker; skip the tests where hosts or PostgreSQL are not to be had."""
    programs = sorted(path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    folder = tmp_path_factory.mktemp("team")
    make_project(folder / "project")
    try:
        network = Network(folder)
    except NoNamespaces as error:
        pytest.skip(f"no hosts here: {error}")
    try:
        team = Team(network, folder, programs[-1])
        team.make_databases()
        for service in ("mlflow", "prefect", "store"):
            team.start(service)
        team.answers("mlflow", "http://mlflow:5000/health")
        team.answers("prefect", "http://prefect:4200/api/health")
        team.answers("store", "http://store:9000/moto-api/")
        yield team
    finally:
        network.close()


@pytest.fixture(scope="module")
def team(services: Team) -> Team:
    """Run the pipeline on the desk, record and promote it, and share it: its code by git, its artifacts by S3."""
    team = services
    shutil.copy2(ROOT / ".dvc" / ".gitignore", team.project / ".dvc")
    config = (team.project / ".dvc" / "config").read_text()
    (team.project / ".dvc" / "config").write_text(config.replace("no_scm = true\n", ""))
    bucket = "import boto3; boto3.client('s3', endpoint_url='http://store:9000').create_bucket(Bucket='loopline')"
    team.desk("-c", bucket)
    team.git("init", "-q", "-b", "main")
    team.desk("-m", "dvc", "remote", "add", "-d", "store", "s3://loopline/store")
    team.desk("-m", "dvc", "remote", "modify", "store", "endpointurl", "http://store:9000")
    team.git("add", "-A")
    team.git("commit", "-qm", "project")
    said = team.desk("-m", "flows.cli", "run")
    assert "of experiment loopline-drill, in http://mlflow:5000" in said and "version  loopline-drill/1" in said
    team.git("add", "-A")
    team.git("commit", "-qm", "run")
    team.desk("-m", "dvc", "push", "--quiet")
    team.git("clone", "-q", "--bare", str(team.project), str(team.public / "loopline.git"))
    team.begin("git", "git", "daemon", "--export-all", f"--base-path={team.public}", str(team.public))
    assert "promoted" in team.desk("-m", "flows.cli", "registry", "promote", "1")
    return team


@pytest.fixture(scope="module")
def deployed(team: Team) -> Team:
    """Start the worker and deploy what it runs."""
    told = {
        "LOOPLINE_REPOSITORY": "git://git/loopline.git",
        "LOOPLINE_COMMIT": team.git("rev-parse", "HEAD"),
        "LOOPLINE_WORKPLACE": str(WORKPLACE),
    }
    team.desk("-m", "prefect", "work-pool", "create", "team", "--type", "process")
    file = str(TEAM / "prefect.yaml")
    said = team.desk("-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", file, **told)
    assert "rescore-champion/team" in said, said
    team.hosts["worker"].run(Path("/"), "mkdir", str(WORKPLACE))
    team.start("worker")
    return team


def test_the_champion_is_promoted_on_one_host_and_played_anew_on_another(deployed: Team) -> None:
    team, worker = deployed, deployed.hosts["worker"]
    assert "No such file" in worker.run(Path("/"), "ls", str(team.project))
    said = team.desk("-m", "prefect", "deployment", "run", "rescore-champion/team", "--watch")
    assert "Completed" in said, said + team.said("worker")
    clone = WORKPLACE / "loopline"
    assert worker.run(clone, "git", "rev-parse", "HEAD").strip() == team.git("rev-parse", "HEAD")
    for split in ("test_normal", "test_challenge"):
        score = worker.run(clone, "sh", "-c", f"grep -l '\"{split}\"' data/scored/loopline-drill-champion-*/score.json")
        anew = worker.run(clone, sys.executable, "-c", TOKENS, str(Path(score).with_name("rollouts.parquet")))
        table = str(Layout(team.project).score_rollouts(split))
        assert anew == team.desk("-c", TOKENS, table, "selected") and len(anew.split()) == 3


def test_a_store_over_ssh_holds_what_a_fresh_clone_needs(team: Team) -> None:
    for name in ("host_key", "client_key"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(team.public / name)]
        team.hosts["ssh"].run(Path("/"), *made)
    team.begin("ssh", sys.executable, "-m", "tests.hosts.ssh_server", team.hosts["ssh"].address, str(team.public))
    clone = team.public / "clone"
    team.git("clone", "-q", "git://git/loopline.git", str(clone))
    for folder in (team.project, clone):
        remote = ("-m", "dvc", "remote")
        team.desk(*remote, "add", "--local", "far", "ssh://root@ssh:8022/root/store", folder=folder)
        team.desk(*remote, "modify", "--local", "far", "keyfile", str(team.public / "client_key"), folder=folder)
    team.desk("-m", "dvc", "push", "--quiet", "-r", "far")
    team.desk("-m", "dvc", "pull", "--quiet", "-r", "far", folder=clone)
    assert "Data and pipelines are up to date" in team.desk("-m", "dvc", "status", folder=clone)
    assert team.hosts["ssh"].run(Path("/root"), "find", "store/files/md5", "-type", "f").count("\n") > 20


def test_each_service_may_be_down_and_says_so_in_one_message(deployed: Team) -> None:
    team, listing = deployed, ("-m", "flows.cli", "registry", "list")
    team.stop("worker")
    waiting = ("-m", "prefect", "deployment", "run", "comparison/team", "-p", 'versions=["champion"]', "--watch")
    asked = team.hosts["desk"].start(team.project, sys.executable, *waiting, **environment(team.project, **DESK))
    time.sleep(20)
    assert asked.poll() is None
    team.start("worker")
    said, _ = asked.communicate(timeout=400)
    assert "Completed" in said, said + team.said("worker")
    refused(team, "prefect", ("-m", "flows.cli", "run"), "no Prefect server answers at http://prefect:4200/api (")
    refused(team, "mlflow", listing, "MLflow at http://mlflow:5000: ", "start that server")
    team.answers("mlflow", "http://mlflow:5000/health")
    refused(team, "postgres", listing, "MLflow at http://mlflow:5000: ", "start that server")
    until(lambda: team.tried(*listing)[0] == 0, lambda: team.said("mlflow"))
    refused(team, "store", ("-m", "dvc", "push"), "Could not connect to the endpoint URL")


def refused(team: Team, service: str, command: tuple[str, ...], *words: str) -> None:
    """Check what a command on the desk says while a service is down, and start that again."""
    team.stop(service)
    code, said = team.tried(*command)
    assert code and all(word in said for word in words) and "Traceback" not in said, said
    team.start(service)
