"""Updates on several ranks: equal to those on one, with checkpoints that any number of ranks resumes, or no result."""

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import UpdateInputs
from tasks.core.config.update import DistributedConfig, UpdateConfig
from tasks.core.interfaces.stage import StageContext
from tasks.core.learner.checkpoint import save_learner
from tasks.core.learner.distributed import SINGLE
from tasks.core.learner.launcher import _own_signal_handlers, _rank_failed
from tasks.core.learner.learner import make_learner
from tasks.core.learner.packing import Rollout
from tasks.core.learner.update_job import UpdateJob
from tasks.core.policies.delivery_probe import read_probe
from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tasks.update_policy import update_policy
from tests.core.learner import two_ranks
from tests.update_policy.test_update_policy import make_params, prepare

pytestmark = pytest.mark.ranks

ROOT = Path(__file__).parents[3]

MakeRollouts = Callable[..., list[Rollout]]
DEADLINE_S = 400
FEW_STEPS = 9
TO_BE_KILLED_IN = 30
"""Optimizer steps. Ranks are killed as soon as they run, seconds before the first."""


def job_params(steps: int = FEW_STEPS) -> Params:
    return make_params(
        tokens_per_pack=40, learning_rate=1e-3, epochs=steps // 3, kl_stop={"limit": 1e6}, distributed={"ranks": 2}
    )


def make_job(layout: Layout, params: Params) -> UpdateJob:
    return UpdateJob(root=layout.root, key="i001", inputs=UpdateInputs.of(params))


@pytest.fixture(scope="module")
def together(base: Path, make_rollouts: MakeRollouts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the results of two ranks that accelerate started (once for all tests)."""
    out = tmp_path_factory.mktemp("together")
    config = UpdateConfig.model_validate(two_ranks.RESUMED)
    learner = make_learner(two_ranks.make_policy(base, SINGLE, config), config)
    two_ranks.train(learner, make_rollouts(10, 1))
    save_learner(learner, out / "half_on_one")
    low = make_learner(two_ranks.make_policy(base, SINGLE, config, **two_ranks.LOW), config)
    two_ranks.train(low, make_rollouts(10, 1))
    save_learner(low, out / "low_on_one")
    params = job_params()
    layout = prepare(out / "project", base, params, {"i001": make_rollouts(11)})
    (out / "job.json").write_text(make_job(layout, params).model_dump_json())
    # `--multi_gpu` is accelerate's name for torchrun; the policy's config sets the device.
    settings = ["--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"]
    ranks = ["--main_process_port=0", "--module", "tests.core.learner.two_ranks", str(base), str(out)]
    launcher = [sys.executable, "-m", "accelerate.commands.launch", *settings, *ranks]
    done = subprocess.run(launcher, capture_output=True, text=True, timeout=DEADLINE_S, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Return the relative difference over all tensors."""
    assert found.keys() == expected.keys()
    gap = sum((found[name].double() - expected[name].double()).pow(2).sum() for name in expected)
    return float((gap / sum(expected[name].double().pow(2).sum() for name in expected)) ** 0.5)


def test_a_bfloat16_base_trains_a_float32_adapter_on_two_ranks(base: Path, together: Path) -> None:
    case = "fsdp, bfloat16 base"
    found = torch.load(together / "gradients.pt")[case]
    expected = two_ranks.case_gradients(base, two_ranks.CASES[case], SINGLE)
    assert {gradient.dtype for gradient in found["gradients"].values()} == {torch.float32}
    assert found["stats"]["loss"] == pytest.approx(expected["stats"]["loss"], abs=0.02)
    assert difference(found["gradients"], expected["gradients"]) < 0.03


@pytest.mark.parametrize("case", [case for case in two_ranks.CASES if "bfloat16" not in case])
def test_two_ranks_have_the_loss_and_the_gradient_of_one(base: Path, together: Path, case: str) -> None:
    found = torch.load(together / "gradients.pt")[case]
    expected = two_ranks.case_gradients(base, two_ranks.CASES[case], SINGLE)
    for name, value in expected["stats"].items():
        assert found["stats"][name] == pytest.approx(value, rel=1e-5, abs=1e-6), name
    assert found["stats"]["rollouts"] == {"one rollout": 1, "pairs": 10}.get(case.partition(", ")[2], 11)
    assert found["entropy"] == pytest.approx(expected["entropy"], rel=1e-5)
    assert all(torch.allclose(*pair, rtol=1e-5, atol=1e-6) for pair in zip(found["old"], expected["old"], strict=True))
    assert difference(found["gradients"], expected["gradients"]) < 1e-5


def test_a_checkpoint_of_two_ranks_resumes_on_one_and_the_other_way_round(
    base: Path, make_rollouts: MakeRollouts, together: Path, tmp_path: Path
) -> None:
    one, two = together / "half_on_one", together / "half_on_two"
    for file in ("adapter_model.safetensors", "optimizer.safetensors"):
        assert difference(load_file(two / file), load_file(one / file)) < 1e-5
    for name in ("adapter_config.json", "learner.json"):
        assert (two / name).read_bytes() == (one / name).read_bytes()
    results = {"whole_on_two": together / "whole_on_two"}
    for name, folder in (("one, one", one), ("two, one", two)):
        learner = two_ranks.resumed(base, folder)
        two_ranks.train(learner, make_rollouts(9, 2))
        save_learner(learner, tmp_path / name)
        results[name] = tmp_path / name
    expected = load_file(tmp_path / "one, one" / "adapter_model.safetensors")
    assert difference(expected, load_file(one / "adapter_model.safetensors")) > 1e-3
    for folder in results.values():
        assert difference(load_file(folder / "adapter_model.safetensors"), expected) < 1e-4
        assert (folder / "learner.json").read_bytes() == (results["one, one"] / "learner.json").read_bytes()


def test_two_ranks_go_on_from_the_masters_of_one(
    base: Path, make_rollouts: MakeRollouts, together: Path, tmp_path: Path
) -> None:
    learner = two_ranks.resumed(base, together / "low_on_one", **two_ranks.LOW)
    two_ranks.train(learner, make_rollouts(9, 2))
    save_learner(learner, tmp_path)
    start, found, expected = (
        {name: tensor for name, tensor in load_file(folder / "optimizer.safetensors").items() if "master" in name}
        for folder in (together / "low_on_one", together / "low_on_two", tmp_path)
    )
    assert difference(found, expected) < 0.2 * difference(start, expected)


def test_the_first_of_two_ranks_writes_the_record_that_one_would(
    base: Path, make_rollouts: MakeRollouts, together: Path, tmp_path: Path
) -> None:
    params = job_params()
    alone = prepare(tmp_path, base, params, {"i001": make_rollouts(11)})
    single = params.update.model_copy(update={"distributed": DistributedConfig()})
    update_policy(StageContext(alone, UpdateInputs.of(params.model_copy(update={"update": single})), "i001"))
    found, expected = read_probe(together / "policy"), read_probe(alone.policy("i001"))
    assert found is not None and expected is not None
    assert [one.token_ids for one in found.sequences] == [one.token_ids for one in expected.sequences]
    for ours, theirs in zip(found.sequences, expected.sequences, strict=True):
        for name in ("logprobs", "base", "previous"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=1e-4)


def test_full_weights_read_in_parts_and_written_again_have_the_same_bytes(
    base: Path, together: Path, tmp_path: Path
) -> None:
    config = UpdateConfig()
    save_learner(make_learner(two_ranks.make_policy(base, SINGLE, config, "full"), config), tmp_path / "one")
    assert digest(together / "full_on_two") == digest(tmp_path / "one")


def test_every_rank_reports_the_same_loss_or_gradient_that_is_not_finite(together: Path) -> None:
    first, second = ((together / f"diverged_{rank}.txt").read_text() for rank in range(2))
    assert first == second
    diverged, overflown = first.splitlines()
    assert diverged.startswith("minibatch 1 of 4: loss nan, gradient norm nan, from row ")
    found = re.fullmatch(
        r"minibatch . of 4: loss -\S+, gradient norm inf, from (.*); nothing was saved\. .*", overflown
    )
    assert found and "the large one" in found[1] and found[1].count(",") <= 1


class Stage:
    """The stage update_policy@i001 of a project, in its own process."""

    def __init__(self, layout: Layout, params: Params) -> None:
        file = layout.root / "params.json"
        file.write_text(params.model_dump_json())
        code = (
            "import sys; from pathlib import Path; from tasks.core.config.params import Params;"
            "from tasks.update_policy import update_policy; from tasks.core.records.layout import Layout;"
            "from tasks.core.interfaces.stage import StageContext;"
            "from tasks.core.config.stage_inputs import UpdateInputs;"
            f"update_policy(StageContext(Layout(Path({str(layout.root)!r})),"
            f"UpdateInputs.of(Params.model_validate_json(Path({str(file)!r}).read_text())), 'i001'))"
        )
        self.process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)

    def started_ranks(self) -> dict[int, int]:
        """Return {rank: process id} as soon as both ranks run."""
        deadline = time.monotonic() + DEADLINE_S
        while len(ranks := ranks_of(self.process.pid)) < 2:
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return ranks

    def end(self) -> tuple[int, str]:
        """Return the stage's exit code and the rest of its stderr."""
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, errors.decode()


def ranks_of(process: int) -> dict[int, int]:
    """Return {rank: process id} of the living ranks that `process` started, also after it ended (by their folder)."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        ranks = [int(word[5:]) for word in words if word.startswith(b"RANK=")]
        if parent == process and ranks:
            found[ranks[0]] = int(folder.name)
    return found


def gone(process: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True


@pytest.fixture
def project(base: Path, make_rollouts: MakeRollouts, tmp_path: Path) -> Layout:
    return prepare(tmp_path / "project", base, job_params(), {"i001": make_rollouts(11)})


@pytest.mark.skipif(sys.platform != "linux", reason="finds the ranks in /proc")
def test_a_killed_rank_fails_the_stage_and_the_next_run_writes_the_same_bytes(project: Layout, tmp_path: Path) -> None:
    params = job_params(TO_BE_KILLED_IN)
    undisturbed = Layout(Path(shutil.copytree(project.root, tmp_path / "undisturbed")))
    stage = Stage(project, params)
    ranks = stage.started_ranks()
    os.kill(ranks[1], signal.SIGKILL)
    code, errors = stage.end()
    assert code == 1
    assert "RankFailed: update_policy@i001: rank 1 of 2 was killed by SIGKILL" in errors
    assert "nothing was saved, run the same command again" in errors
    assert errors.count("Traceback") == 1
    assert all(gone(process) for process in ranks.values())
    inputs = ["advantages.json", "training_batch.parquet"]
    assert sorted(file.name for file in project.iteration("i001").iterdir()) == inputs

    for layout in (project, undisturbed):
        code, errors = Stage(layout, params).end()
        assert code == 0, errors
    assert sorted(file.name for file in project.iteration("i001").iterdir()) == sorted(
        [*inputs, "metrics.json", "policy", "update_timings.json"]
    )
    assert digest(project.policy("i001")) == digest(undisturbed.policy("i001"))


@pytest.mark.skipif(sys.platform != "linux", reason="finds the ranks in /proc")
def test_no_rank_outlives_a_killed_stage(project: Layout) -> None:
    stage = Stage(project, job_params(TO_BE_KILLED_IN))
    ranks = stage.started_ranks()
    stage.process.kill()
    stage.end()
    deadline = time.monotonic() + DEADLINE_S
    while not all(gone(process) for process in ranks.values()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not project.policy("i001").exists()


def test_a_signal_that_comes_within_a_call_of_logging_is_not_lost() -> None:
    class Interrupted(logging.StreamHandler):  # type: ignore[type-arg]
        def format(self, record: logging.LogRecord) -> str:
            os.kill(os.getpid(), signal.SIGTERM)
            return super().format(record)

    logger, before = logging.getLogger("interrupted"), signal.getsignal(signal.SIGTERM)
    logger.addHandler(Interrupted())
    with pytest.raises(SystemExit, match="143"), _own_signal_handlers():
        logger.error("a word")
    assert signal.getsignal(signal.SIGTERM) is before


def failure(folder: Path, exitcode: int, message: str | None) -> ProcessFailure:
    file = folder / f"{exitcode}.json"
    if message is not None:
        extra = '"extraInfo": {"py_callstack": "where", "timestamp": "17"}'
        file.write_text(f'{{"message": {{"message": "{message}", {extra}}}}}')
    return ProcessFailure(local_rank=0, pid=7, exitcode=exitcode, error_file=str(file))


def test_the_reported_error_is_the_cause_of_the_others(tmp_path: Path) -> None:
    job = make_job(Layout(tmp_path), job_params())
    ours = failure(tmp_path, 3, "UpdateDiverged: update_policy@i001: minibatch 2 of 3: loss nan")
    dead = failure(tmp_path, -9, None)
    lost = failure(tmp_path, 1, "RuntimeError: connection closed by peer")
    closed = failure(tmp_path, -15, None)
    assert str(_rank_failed(job, {0: lost, 1: ours})) == "update_policy@i001: minibatch 2 of 3: loss nan"
    assert "rank 1 of 2 was killed by SIGKILL (the system" in str(_rank_failed(job, {0: lost, 1: dead, 2: closed}))
    assert "rank 1 of 2 was killed by SIGKILL (the system" in str(_rank_failed(job, {0: closed, 1: dead}))
    expected = "update_policy@i001: rank 0 of 2 failed: RuntimeError: connection closed by peer; nothing was saved"
    assert str(_rank_failed(job, {0: lost})) == expected
