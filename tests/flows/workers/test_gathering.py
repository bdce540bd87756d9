"""Places in an update, by what each machine said last. The machines themselves: tests/hosts."""

import logging
from pathlib import Path

import pytest

from flows.dag.stage_code import module_version
from flows.workers.environment import environment
from flows.workers.gathering import CODE, Gathering
from flows.workers.join_channel import Coming, NoPlace
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import UpdateInputs
from tasks.core.learner.ranks import RANK_MODULE
from tasks.core.learner.training import UpdateJob
from tests.hosts.parts import make_update


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
