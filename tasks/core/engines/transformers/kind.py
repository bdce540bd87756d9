"""The face of the engine in this process."""

from tasks.core.config.policy import PolicyConfig
from tasks.core.interfaces.engine import Engine
from tasks.core.interfaces.engine_kind import EngineKind, EngineNeeds


class Transformers(EngineKind[None]):
    """Sample from a Hugging Face model in this process."""

    def open(self, settings: None, needs: EngineNeeds) -> Engine:
        from tasks.core.engines.transformers.own_cache import in_process_engine
        from tasks.core.policies.loading import load_base_model

        return in_process_engine(load_base_model(needs.base_policy, needs.policy))

    def uses_cores(self, policy: PolicyConfig) -> bool:
        from tasks.core.policies.loading import device

        return device(policy).type == "cpu"


ENGINE = Transformers()
