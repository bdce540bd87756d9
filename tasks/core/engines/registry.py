"""Engines by the name in params.yaml (`engine.name`)."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tasks.core.config.chat_api import ChatApiConfig
from tasks.core.config.engine import (
    ChatApiSection,
    EngineConfig,
    OracleSection,
    ScriptedSection,
    TransformersSection,
    VllmSection,
)
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.scripted import flawed_engine, oracle_engine
from tasks.core.interfaces.engine import Engine
from tasks.core.interfaces.world import World
from tasks.core.policies.chat_format import ChatFormat


def open_engine(
    config: EngineConfig,
    policy: PolicyConfig,
    base_policy: Path,
    world: World,
    chat: ChatFormat,
    learner_bytes: float | None = None,
) -> Engine:
    """Return the engine that `engine.name` names, with the base model of the folder `base_policy` loaded.

    `world` and `chat` are for engines that recite. `learner_bytes` is the memory that an update will need on a device
    shared with our servers (None: no update). Raises ValueError when the world has nothing to recite.
    """
    match config:
        case TransformersSection():
            return _transformers(policy, base_policy)
        case VllmSection():
            from tasks.core.engines.vllm_server.opening import open_vllm

            return open_vllm(config.vllm, policy, base_policy, chat, learner_bytes)
        case OracleSection():
            return oracle_engine(world, chat)
        case ScriptedSection():
            return flawed_engine(world, chat)
        case ChatApiSection():
            return _chat_api(config.chat_api, chat)


def forget_paid_answers(engine: str, task_ids: Iterable[str]) -> None:
    """Discard the paid answers on these tasks, because their result is written now."""
    if engine == "chat_api":
        from tasks.core.engines.chat_api.paid_answers import PaidAnswers

        with closing(PaidAnswers()) as paid:
            paid.drop(task_ids)


def _transformers(policy: PolicyConfig, base_policy: Path) -> Engine:
    from tasks.core.engines.in_process.own_cache import in_process_engine
    from tasks.core.policies.loading import load_base_model

    return in_process_engine(load_base_model(base_policy, policy))


def _chat_api(config: ChatApiConfig, chat: ChatFormat) -> Engine:
    from tasks.core.engines.chat_api.engine import ChatApiEngine

    return ChatApiEngine(config, chat)
