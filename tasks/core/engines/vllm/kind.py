"""The face of vLLM's servers."""

from tasks.core.config.engine import SharedDevice
from tasks.core.config.params import Params
from tasks.core.engines.vllm.interpreter import VLLM_CPU, VLLM_GPU
from tasks.core.engines.vllm.settings import LEAST_TEMPERATURE, VllmConfig
from tasks.core.interfaces.engine import Engine
from tasks.core.interfaces.engine_kind import EngineKind, EngineNeeds
from tasks.core.interpreters import InterpreterRecipe


class Vllm(EngineKind[VllmConfig]):
    """Sample by vLLM's servers, our own or others."""

    settings = VllmConfig
    in_process = False

    def open(self, settings: VllmConfig, needs: EngineNeeds) -> Engine:
        from tasks.core.engines.vllm.engine import open_vllm

        return open_vllm(settings, needs.policy, needs.base_policy, needs.chat, needs.memory)

    def check(self, settings: VllmConfig, params: Params) -> None:
        if settings.urls and params.iterations and params.policy.trained == "full":
            raise ValueError(
                f"engine.vllm.urls: servers that run already can be given adapters alone ({', '.join(settings.urls)}); "
                "set policy.trained: lora, or unset urls, so that the pipeline starts servers (machines.ray: on other "
                "hosts, too)"
            )

    def check_sampling(
        self, settings: VllmConfig, section: str, temperature: float, top_k: int = 0, top_p: float = 1.0
    ) -> None:
        if 0 < temperature < LEAST_TEMPERATURE:
            raise ValueError(
                f"{section}.temperature: vLLM samples at {LEAST_TEMPERATURE} or more, or greedily at 0; {temperature} "
                "is between"
            )

    def interpreters(self) -> tuple[InterpreterRecipe, ...]:
        return (VLLM_CPU, VLLM_GPU)

    def waits_for_update(self, settings: VllmConfig) -> str | None:
        if settings.urls or settings.sharing == "side_by_side":
            return None
        return (
            "own vLLM servers may have to make room for the update; set engine.vllm.sharing to side_by_side, or "
            "engine.vllm.urls to servers elsewhere"
        )

    def devices(self, settings: VllmConfig) -> int:
        return settings.gpus_per_server

    def context_length(self, settings: VllmConfig) -> int | None:
        return settings.context_length

    def shared_device(self, settings: VllmConfig) -> SharedDevice:
        return settings

    def serving(self, source: str, revision: str | None, rank: int | None, adapter: str) -> str:
        from tasks.core.engines.vllm.launching import LORA_RANKS, allowed_rank

        if rank is None:
            return f"vllm serve {source}"
        if rank > LORA_RANKS[-1]:
            return f"# vLLM takes adapters up to rank {LORA_RANKS[-1]}"
        pinned = f" --revision {revision}" if revision else ""
        adapted = f"--enable-lora --max-lora-rank {allowed_rank(rank)} --lora-modules policy={adapter}"
        return f"vllm serve {source}{pinned} {adapted}"


ENGINE = Vllm()
