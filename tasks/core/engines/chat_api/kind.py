"""The face of models behind an OpenAI-compatible API."""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing

from tasks.core.chat_servers.settings import ChatApiConfig
from tasks.core.config.engine import PaidModel
from tasks.core.config.params import Params
from tasks.core.interfaces.engine import Engine
from tasks.core.interfaces.engine_kind import EngineKind, EngineNeeds


class ChatApi(EngineKind[ChatApiConfig]):
    """Ask a model behind an API, which can be scored but not trained."""

    settings = ChatApiConfig
    samples_policy = in_process = False

    def open(self, settings: ChatApiConfig, needs: EngineNeeds) -> Engine:
        from tasks.core.engines.chat_api.engine import ChatApiEngine

        return ChatApiEngine(settings, needs.chat)

    def check(self, settings: ChatApiConfig, params: Params) -> None:
        if params.iterations:
            raise ValueError(
                "engine.name: chat_api asks a model behind an API, which can be scored but not trained; "
                "set iterations: 0, or start from `loopline configure openai`"
            )
        if params.scoring.at_training_budget:
            raise ValueError(
                "scoring.at_training_budget: a model behind an API has no training budget here, and every answer "
                "would be paid for twice; set it to false"
            )
        if params.machines.ray.address is not None:
            raise ValueError(
                "machines.ray: the rate limits of engine.chat_api apply to one process only; set its address to null"
            )

    def check_sampling(
        self, settings: ChatApiConfig, section: str, temperature: float, top_k: int = 0, top_p: float = 1.0
    ) -> None:
        if not settings.request.send_temperature and temperature != 1:
            raise ValueError(
                f"{section}.temperature: engine.chat_api.request.send_temperature: false sends none, so {temperature} "
                "would not be used; set it to 1.0, at which models without a temperature sample"
            )

    def forget(self, settings: ChatApiConfig, task_ids: Iterable[str]) -> None:
        from tasks.core.chat_servers.paid_answers import PaidAnswers

        with closing(PaidAnswers()) as paid:
            paid.drop(settings.request.named(task) for task in task_ids)

    def lacking(self, settings: ChatApiConfig) -> Iterator[str]:
        key = settings.traffic.key_variable
        if key and key not in os.environ:
            yield f"engine.chat_api.traffic.key_variable: the environment variable {key} is not set"

    def price(self, settings: ChatApiConfig) -> PaidModel:
        return PaidModel(settings.request.model, settings.traffic)


ENGINE = ChatApi()
