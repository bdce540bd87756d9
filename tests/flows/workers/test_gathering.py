"""Places in an update, by what each machine said last. The machines themselves: tests/hosts."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flows.dag.stage_code import module_version
from flows.workers.environment import environment
from flows.workers.gathering import CODE, Gathering
from flows.workers.join_channel import Coming, NoPlace
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import UpdateInputs
from tasks.core.learner.launcher import RANK_MODULE
from tasks.core.learner.update_job import UpdateJob
from tests.hosts.parts import make_update

LONG_BEAT_S = 60.0


@pytest.fixture
def gathering(tmp_path: Path) -> Gathering:
    """Return the gathering of an update on three machines, of which the pipeline's is one."""
    root = make_update(tmp_path / "project", nodes=3).root
    inputs = UpdateInputs.of(Params.model_validate_json((root / "params.json").read_text()))
    return Gathering("update_policy@i001", UpdateJob(root=root, key="i001", inputs=inputs), "10.77.0.1", 1)


def test_a_machine_that_is_back_while_others_do_not_know_the_end_is_no_surplus(
    gathering: Gathering, caplog: pytest.LogCaptureFixture
) -> None:
    code = module_version(RANK_MODULE, CODE)
    comings = {name: Coming(host=name, environment=environment(), code=code) for name in "bcd"}
    guests = [
        gathering.hear(gathering.join(comings[name], f"10.77.0.{place}").session)
        for place, name in ((2, "b"), (3, "c"))
    ]
    for guest in guests:
        assert guest is not None
        guest.is_ready = True
    gathering.wait()
    with caplog.at_level(logging.WARNING), pytest.raises(NoPlace, match=r"has its 3 machines"):
        gathering.join(comings["d"], "10.77.0.4")
    assert "d (10.77.0.4) came, too" in caplog.text
    assert guests[0] is not None
    gathering.fail(guests[0], "rank 1 of 3 was killed")
    gathering.fail(guests[0], "rank 1 of 3 was killed")  # as it says again when it hears of the end
    caplog.clear()
    with pytest.raises(NoPlace, match="update_policy@i001 is over"):
        gathering.join(comings["b"], "10.77.0.2")
    assert not caplog.text


def test_a_machine_that_waits_for_the_begin_hears_of_it_at_once(
    gathering: Gathering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.workers.gathering.BEAT_S", LONG_BEAT_S)
    coming = Coming(host="b", environment=environment(), code=module_version(RANK_MODULE, CODE))
    guest = gathering.hear(gathering.join(coming, "10.77.0.2").session)
    assert guest is not None
    began = time.monotonic()
    with ThreadPoolExecutor(1) as asking:
        asked = asking.submit(gathering.news, guest)
        time.sleep(0.2)
        assert not asked.done()
        gathering.end("stopped")
        assert asked.result().reason == "stopped" and gathering.news(guest).state == "ended"
    assert time.monotonic() - began < LONG_BEAT_S / 2
