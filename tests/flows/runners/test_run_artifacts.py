"""What a run tells Prefect's UI: the rows of the table of scores, and an event of each new sign of a collapse."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prefect.events.clients import AssertingEventsClient
from prefect.events.worker import EventsWorker
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.runners import run_artifacts
from flows.runners.run_artifacts import RunPage, score_rows, tell
from tasks.core.processes.addresses import free_port
from tasks.core.records.training import CollapseWarning
from tests.finished_run import scores, training_budget


def test_a_split_is_one_row_and_a_separate_training_budget_is_another() -> None:
    plain = scores("test_normal")
    figures = {"policy of iteration": "i002", "TGC": 70.0, "SGC": 50.0, "base TGC": 30.0, "base SGC": 10.0}
    assert list(score_rows(plain)) == [{"split": "test_normal", **figures}]
    tokens = "1,500 tokens per turn, 3,000 per observation"
    main = {"split": f"test_normal, 40 turns, {tokens}", **figures}
    again = {"split": f"test_normal, 20 turns, {tokens} (training budget)", **figures, "TGC": 60.0}
    both = plain.model_copy(update={"training_budget": training_budget(plain, tgc=60.0)})
    assert list(score_rows(both)) == [main, again]
    same = plain.model_copy(update={"training_budget": training_budget(plain, turns=40)})
    assert list(score_rows(same)) == [main]


class Healthy(BaseHTTPRequestHandler):
    """Says of itself what a Prefect server says."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/api/health" else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"true")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def sent() -> Iterator[type[AssertingEventsClient]]:
    """Prefect's own client that records the events which it is given, and a server that is up."""
    EventsWorker.set_client_override(AssertingEventsClient)
    AssertingEventsClient.reset()
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever).start()
        with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{server.server_port}/api"}):
            yield AssertingEventsClient
        server.shutdown()
    EventsWorker.set_client_override(None)


def test_each_new_sign_of_a_collapse_is_an_event(
    sent: type[AssertingEventsClient], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    signs = [("a", 2), ("a", 3), ("b", 3)]
    found = [CollapseWarning(rule=rule, iteration=iteration, evidence="low") for rule, iteration in signs]
    monkeypatch.setattr(run_artifacts, "read_warnings", lambda *_: found)
    monkeypatch.setattr(run_artifacts, "create_table_artifact", lambda *_, **__: None)
    page = RunPage(None)
    page.show_warnings(tmp_path, "i003")
    page.show_warnings(tmp_path, "i004")
    EventsWorker.drain_all()
    (client,) = sent.all
    assert [event.event for event in client.events] == ["loopline.collapse-warned"] * 2
    assert [event.payload["text"] for event in client.events] == ["i003: a: low", "i003: b: low"]
    assert {event.resource.id for event in client.events} == {f"loopline.checkout.{tmp_path}"}


def test_nothing_is_sent_where_no_server_is_configured(sent: type[AssertingEventsClient], tmp_path: Path) -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        tell("schedule-skipped", "busy", tmp_path)
    EventsWorker.drain_all()
    assert [event for client in sent.all for event in client.events] == []
    tell("schedule-skipped", "busy", tmp_path)
    EventsWorker.drain_all()
    assert [event.event for client in sent.all for event in client.events] == ["loopline.schedule-skipped"]


def test_nothing_is_sent_to_a_server_that_does_not_answer(sent: type[AssertingEventsClient], tmp_path: Path) -> None:
    """One that is down, and one that takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        for port in (free_port(), mute.getsockname()[1]):
            with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{port}/api"}):
                tell("schedule-skipped", "busy", tmp_path)
    EventsWorker.drain_all()
    assert [event for client in sent.all for event in client.events] == []
