"""The stage preflight on real small models, with real memory limits."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from flows.params_file import params_of
from tasks.core.capacity.known_models import KNOWN_MODELS
from tasks.core.capacity.memory import memory_of
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import PreflightInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.learner.launcher import RankFailed
from tasks.core.policies.architecture import TinyQwen2, new_model
from tasks.core.policies.checkpoint_files import read_model_config
from tasks.core.policies.loading import save_policy, trainable_policy
from tasks.core.processes.resources import usable_cores
from tasks.core.records.documents import read_document
from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tasks.core.records.training import Preflight
from tasks.preflight import DoesNotFit, longest_batch, memory_explained, preflight

SIZES = TinyQwen2(width=32, heads=1, feed_forward=32, context_length=256)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Make a project with a tiny base policy and its untrained checkpoint."""
    layout = Layout(tmp_path)
    model = new_model(SIZES, 100, 0, 1, seed=0)
    model.save_pretrained(layout.base_policy)
    save_policy(trainable_policy(model, params().policy, None, seed=0), layout.policy("i000"))
    return layout


def params(*assignments: str) -> Params:
    return params_of("smoke", ["policy.device=cpu", *assignments])


def test_the_longest_update_is_tried_and_leaves_the_policy_as_it_was(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    before = digest(layout.policy("i000")), digest(layout.base_policy)
    preflight(StageContext(layout, PreflightInputs.of(params("update.tokens_per_pack=600"))))
    assert read_document(layout.preflight, Preflight) == Preflight(positions=512, rollouts=2, ranks=1, passes="packed")
    assert (digest(layout.policy("i000")), digest(layout.base_policy)) == before
    assert sorted(path.name for path in layout.data.iterdir()) == ["iterations", "policy", "preflight.json"]
    assert f"preflight: {max(2, usable_cores())} x 512 positions fit" in capsys.readouterr().out


def test_a_critic_is_tried_and_counted_with_the_policy(layout: Layout) -> None:
    inputs = PreflightInputs.of(params_of("smoke ppo", ["policy.device=cpu", "update.tokens_per_pack=600"]))
    preflight(StageContext(layout, inputs))
    assert layout.preflight.exists()
    config = read_model_config(layout.base_policy)
    assert memory_of(inputs, config, "cuda").learner.critic == 16 * (33 * 19 + 20 * 13 + 14)  # 32-19-13-1, with biases
    assert memory_of(PreflightInputs.of(params()), config, "cuda").learner.critic == 0


@pytest.mark.parametrize(
    "profile, knobs",
    [
        ("smoke", []),
        ("smoke", ["update.loss.kl_coefficient=0.1"]),
        ("smoke dmpo", []),
        ("smoke dmpo", ["update.preference.reference=base"]),
        ("smoke", ["update.preference.reference=base"]),
    ],
)
def test_the_passes_of_the_reference_are_tried_where_an_update_makes_them(profile: str, knobs: list[str]) -> None:
    run = params_of(profile, knobs)
    assert PreflightInputs.of(run).needs_reference == run.update.needs_reference


def test_only_the_presence_of_a_penalty_matters() -> None:
    first, second, none = (
        PreflightInputs.of(params(f"update.loss.kl_coefficient={kl}", f"update.loss.entropy_coefficient={entropy}"))
        for kl, entropy in ((0.1, 0.01), (0.2, 0.02), (0.0, 0.0))
    )
    assert first == second != none


def test_the_same_params_give_the_same_bytes_and_a_run_without_iterations_tries_nothing(layout: Layout) -> None:
    for _ in range(2):
        preflight(StageContext(layout, PreflightInputs.of(params())))
    first = layout.preflight.read_bytes()
    preflight(StageContext(layout, PreflightInputs.of(params("update.learning_rate=1e-5"))))
    assert layout.preflight.read_bytes() == first
    preflight(StageContext(layout, PreflightInputs.of(params("iterations=0"))))
    assert read_document(layout.preflight, Preflight) == Preflight(positions=0, rollouts=0, ranks=1, passes=None)


def rank_of(stage: int, rank: str) -> psutil.Process | None:
    """Return the process of a rank that the stage with this process id has started, if there is one."""
    for child in psutil.Process(stage).children():
        with suppress(psutil.Error):  # it is not yet what it will execute, or has ended
            if child.environ().get("RANK") == rank:
                return child
    return None


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="reads the ranks' environment")
def test_a_rank_killed_from_outside_is_no_lack_of_memory(layout: Layout) -> None:
    code = f"""
from pathlib import Path
from flows.params_file import params_of
from tasks.preflight import preflight
from tasks.core.records.layout import Layout
from tasks.core.interfaces.stage import StageContext
from tasks.core.config.stage_inputs import PreflightInputs
settings = ["policy.device=cpu", "update.distributed.ranks=2", "update.tokens_per_pack=50000"]
preflight(StageContext(Layout(Path({str(layout.root)!r})), PreflightInputs.of(params_of("smoke", settings))))
"""
    stage = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE)
    while (rank := rank_of(stage.pid, "1")) is None:
        assert stage.poll() is None
    rank.kill()
    errors = stage.communicate(timeout=300)[1].decode()
    assert stage.returncode == 1 and errors.count("Traceback") == 1
    assert "RankFailed: update_policy@i001: rank 1 of 2 was killed by SIGKILL" in errors
    assert "DoesNotFit" not in errors
    assert not layout.preflight.exists() and not layout.preflight_project.exists()


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """Make a memory cgroup of 100 MB, whose processes the kernel kills when they need more."""
    group = Path(f"/sys/fs/cgroup/memory/loopline-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    (group / "memory.limit_in_bytes").write_text(str(100_000_000))
    yield group
    group.rmdir()


KILLED = RankFailed("rank 1 of 2 was killed by SIGKILL", signal.SIGKILL)


def test_a_rank_that_the_kernel_kills_for_memory_does_not_fit(little_memory: Path) -> None:
    """The kernel really kills a child process while the update is tried.

    Without that, the signal has another sender.
    """
    greedy = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); b'x' * 300_000_000"
    config = KNOWN_MODELS["Qwen/Qwen2.5-0.5B-Instruct"].config
    with pytest.raises(DoesNotFit, match=r"rank 1 of 2 was killed by SIGKILL.*By the plan, each device needs"):  # noqa: SIM117
        with memory_explained(PreflightInputs.of(params()), config, 512):
            done = subprocess.run([sys.executable, "-c", greedy, str(little_memory / "cgroup.procs")])
            assert done.returncode == -signal.SIGKILL
            raise KILLED
    for other in (KILLED, RankFailed("rank 0 was killed by SIGSEGV", signal.SIGSEGV)):
        with (
            pytest.raises(RankFailed, match="was killed by"),
            memory_explained(PreflightInputs.of(params()), config, 512),
        ):
            raise other


def test_running_out_of_memory_is_one_error_that_names_the_knob(layout: Layout) -> None:
    """The process may really allocate only 60 MB more than at the start of the update, which needs several hundred."""
    code = f"""
import resource, sys
from pathlib import Path
import torch
import peft, transformers.models.qwen2.modeling_qwen2, pyarrow.parquet, pandera.pyarrow
torch.set_num_threads(1)
from flows.params_file import params_of
from tasks import preflight as stage
from tasks.core.records.layout import Layout
from tasks.core.interfaces.stage import StageContext
from tasks.core.config.stage_inputs import PreflightInputs
read = stage.read_batch
def limited(job):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 60_000_000,) * 2)
    return read(job)
stage.read_batch = limited
params = params_of("smoke", ["policy.device=cpu", "update.tokens_per_pack=150000"])
try:
    stage.preflight(StageContext(Layout(Path({str(layout.root)!r})), PreflightInputs.of(params)))
except stage.DoesNotFit as error:
    print(error)
    sys.exit(7)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 7, done.stderr[-2000:]
    assert "149,760 positions in one pass) runs out of memory" in done.stdout
    assert "allocate" in done.stdout and "By the plan, each device needs" in done.stdout
    assert "update.activation_checkpointing: true" in done.stdout
    assert not layout.preflight.exists() and not (layout.data / ".preflight").exists()


def test_any_other_error_is_left_unchanged(layout: Layout) -> None:
    weights = layout.policy("i000") / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:50])
    with pytest.raises(Exception, match="damaged safetensors"):
        preflight(StageContext(layout, PreflightInputs.of(params())))
    assert not (layout.data / ".preflight").exists()


def test_the_batch_is_full_of_policy_tokens() -> None:
    rows = longest_batch(length=50, rollouts=3, vocabulary=20, turns=4, seed=1)
    assert [len(row["token_ids"]) for row in rows] == [51] * 3
    assert all(sum(row["policy_mask"]) == 50 and max(row["token_ids"]) < 20 for row in rows)
    assert rows[0]["token_ids"] != rows[1]["token_ids"]
    assert {row["advantage"] for row in rows} == {0.5, -0.5}
    assert torch.tensor(rows[0]["turn_index"][1:]).diff().min() >= 0
