"""Prefect's UI on a custom port: it asks the server that it came from."""

import json
import urllib.request
from pathlib import Path

import pytest

from flows.runners.local_services import server_settings
from flows.runners.prefect_server import api_url, start_server, stop, wait_until_healthy
from tasks.core.processes.addresses import free_port

pytestmark = pytest.mark.services


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
