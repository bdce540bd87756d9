"""Engines by the name in params.yaml (`collection.engine`)."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tasks.core.config.collection import CollectionConfig
from tasks.core.config.engine import EngineConfig
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.scripted import flawed_engine, oracle_engine
from tasks.core.interfaces.engine import Engine
from tasks.core.interfaces.world import World
from tasks.core.policies.chat_format import ChatFormat


def open_engine(
    collection: CollectionConfig,
    policy: PolicyConfig,
    base_policy: Path,
    world: World,
    chat: ChatFormat,
    settings: EngineConfig = EngineConfig(),  # noqa: B008 - frozen
    learner_bytes: float | None = None,
) -> Engine:
    """The engine that `collection.engine` names, with the base model of the folder `base_policy` loaded.

    `world` and `chat` are for the engines that recite; `learner_bytes` is what an update will need beside own servers
    (None: there is none). Raises ValueError when the world has nothing to recite.
    """
    match collection.engine:
        case "transformers":
            return _transformers(policy, base_policy)
        case "vllm":
            from tasks.core.engines.vllm_server.opening import open_vllm

            return open_vllm(settings.vllm, policy, base_policy, chat, learner_bytes)
        case "oracle":
            return oracle_engine(world, chat)
        case "scripted":
            return flawed_engine(world, chat)
        case "chat_api":
            return _chat_api(collection, chat)


def forget_paid_answers(collection: CollectionConfig, task_ids: Iterable[str]) -> None:
    """Say that the result on these tasks is written: an engine that is paid for keeps its answers until then."""
    if collection.engine == "chat_api":
        from tasks.core.engines.chat_api.paid_answers import PaidAnswers

        with closing(PaidAnswers()) as paid:
            paid.drop(task_ids)


def _transformers(policy: PolicyConfig, base_policy: Path) -> Engine:
    from tasks.core.engines.in_process.engine import TransformersEngine
    from tasks.core.policies.loading import load_base_model

    return TransformersEngine(load_base_model(base_policy, policy))


def _chat_api(collection: CollectionConfig, chat: ChatFormat) -> Engine:
    from tasks.core.engines.chat_api.engine import ChatApiEngine

    return ChatApiEngine(collection.chat_api, chat)
