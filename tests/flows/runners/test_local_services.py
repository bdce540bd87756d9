"""The deployments' services: ports, histories, schedules in words, the page."""

import json
import socket
import sqlite3
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from flows.runners.local_services import schedule_lines, serve, server_settings
from flows.runners.prefect_server import (
    ServerError,
    api_url,
    local_server,
    require_free,
    start_server,
    stop,
    wait_until_healthy,
)
from tasks.core.processes.addresses import fault_of, free_port
from tests.flows.tiny_project import ROOT


def test_a_port_that_another_server_holds_is_not_mistaken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerError, match=rf"port {port} is not free \(Address already in use\); .*--port"):
            serve(tmp_path, port)
    assert not list(tmp_path.iterdir()), "nothing was started"


def test_the_port_of_a_server_that_has_just_ended_is_free() -> None:
    """Its closed connections stay for a minute, yet a server that died must start again at once."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = server.accept()
        accepted.close()  # the server closes first, which leaves its port waiting
        client.recv(1)
    require_free(port)


@pytest.mark.services
@pytest.mark.parametrize(
    ("newer", "fault"), [(True, r"CommandError: Can't locate revision"), (False, r"file is not a database")]
)
def test_a_history_that_the_server_cannot_read_is_one_line_with_the_way_out(
    newer: bool, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    history = tmp_path / "prefect.db"
    if newer:
        with closing(sqlite3.connect(history)) as database:
            database.execute("create table alembic_version (version_num varchar(32))")
            database.execute("insert into alembic_version values ('of tomorrow')")
            database.commit()
    else:
        history.write_text("no database")
    said = rf"{fault}.*`mv {history} {history}\.old`.*--without-prefect"
    with pytest.raises(ServerError, match=said), local_server():
        pass


@pytest.mark.services
def test_a_server_of_ours_takes_no_password(prefect_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`PREFECT_SERVER_API_AUTH_STRING` is of a server that others reach; ours answers our clients, which know none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", prefect_home)
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "someone:secret")
    with local_server() as url:
        assert fault_of(f"{url}/admin/version") is None


def test_schedules_are_said_in_words() -> None:
    assert [*schedule_lines(ROOT / "prefect.yaml")] == [
        "nightly/local: at 02:00 every day, UTC",
        "short-iteration/local: at minute 30 of every hour, UTC "
        "(paused: start it on its page, or have `active: true` in prefect.yaml)",
        "rescore-champion/local: at 12:00 on Sunday, UTC",
        "comparison/local: on demand",
        "note/local: at each event loopline.*",
    ]


def test_other_kinds_of_schedules_are_shown_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "prefect.yaml"
    both = "[{interval: 3600}, {rrule: FREQ=DAILY}, {cron: 5 8 * * *, timezone: Europe/Rome}]"
    path.write_text(f"deployments: [{{name: a, entrypoint: flows.deployments.nightly, schedules: {both}}}]")
    assert [*schedule_lines(path)] == [
        "nightly/a: interval 3600",
        "nightly/a: rrule FREQ=DAILY",
        "nightly/a: at 08:05 every day, Europe/Rome",
    ]


@pytest.mark.services
def test_the_ui_asks_its_own_server_for_its_data(
    prefect_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", prefect_home)
    port = free_port()
    process = start_server(port, server_settings(port))
    try:
        wait_until_healthy(api_url(port), process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ui-settings", timeout=30) as answer:
            assert json.load(answer)["api_url"] == api_url(port)
    finally:
        stop(process)
