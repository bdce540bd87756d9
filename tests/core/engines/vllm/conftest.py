"""Two real servers on the embedded policy, started once for all tests of this folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch

from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.engines.vllm import probe_records
from tasks.core.engines.vllm.engine import VllmEngine, open_vllm
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_base_model, load_tokenizer, save_policy, trainable_policy

SHIPPED = Path(__file__).parents[4] / "data" / "base_policies" / "pocket"
POLICY = PolicyConfig(device="cpu")
Processes = Callable[[], list[psutil.Process]]


@pytest.fixture(scope="session")
def chat() -> ChatFormat:
    return ChatFormat(load_tokenizer(SHIPPED))


@pytest.fixture(scope="session")
def engine(chat: ChatFormat, servers: Processes) -> Iterator[VllmEngine]:
    engine = open_vllm(VllmConfig(servers=2, sharing="alternate"), POLICY, SHIPPED, chat)
    engine.load_adapter(None)
    yield engine
    engine.sleep()
    assert not servers(), "resting servers leave the device"
    engine.close()


@pytest.fixture(scope="session")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes an adapter with B not zero, drawn from `seed`."""

    def write(seed: int, rank: int = 8) -> Path:
        folder = tmp_path_factory.mktemp(f"adapter{seed}_{rank}")
        config = PolicyConfig(device="cpu", lora=LoraSettings(rank=rank, alpha=2 * rank))
        policy = trainable_policy(load_base_model(SHIPPED, config), config, None, seed)
        generator = torch.Generator().manual_seed(seed)
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight.data.normal_(0, 0.05, generator=generator)
        save_policy(policy, folder)
        return folder

    return write


@pytest.fixture(scope="session")
def servers() -> Processes:
    """API server processes below the supervisors of this process."""

    def found() -> list[psutil.Process]:
        return [server for child in psutil.Process().children() if _supervises(child) for server in child.children()]

    return found


def _supervises(process: psutil.Process) -> bool:
    try:
        return "vllm.supervisor" in " ".join(process.cmdline())
    except psutil.ZombieProcess:  # ended with its server, and nobody asked after it yet
        return False


@pytest.fixture
def own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are computed are kept here, not in the project."""
    monkeypatch.setattr(probe_records, "STATE_FOLDER", tmp_path / "kept")


@pytest.fixture
def urls(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """One of the servers, as a stranger finds it."""
    engine.load_adapter(None)
    address = engine._pool._provider.start(None)[0]
    monkeypatch.setenv("VLLM_API_KEY", address.key)
    return (address.url,)
