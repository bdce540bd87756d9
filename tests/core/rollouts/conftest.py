import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from tasks.core.config.collection import AgentLimits
from tasks.core.config.params import Params, parse_params
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.splits import Split
from tasks.core.config.stage_inputs import CollectionInputs, TaskFilterInputs
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import Evaluation, ExecutionTimeout, Message, Observation, Task, WorldFault
from tasks.core.interfaces.world_kind import prepare_world_folder
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy
from tasks.core.records.layout import Layout
from tasks.core.rollouts.planning import PlaySettings
from tasks.filter_tasks import filter_tasks
from tests.tiny_models import tiny_qwen2

TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


class Count:
    """An episode of the counting game: name letters until one of them is a vowel; the letters named are the state."""

    def __init__(self, world: "CountingGame", task_id: str, seed: int) -> None:
        self._world, self._task_id, self._named = world, task_id, ""
        self._brittle = task_id in world.brittle and seed % 2 == 0
        self.prompt: list[Message] = [{"role": "user", "content": f"Name letters, please. Task {task_id}."}]
        self.closed = False

    def step(self, text: str) -> Observation:
        assert not self.closed
        time.sleep(self._world.pause_s)
        if self._task_id in self._world.broken:
            raise ZeroDivisionError("a bug of the world")
        if self._task_id in self._world.endless:
            raise ExecutionTimeout(self._task_id)
        if self._brittle and len(self._named) > 6:
            raise WorldFault("the referee has left")
        self._named += text
        done = any(letter in "aeiou" for letter in text)
        text = f"{len(self._named)} named\n" * self._world.chatter
        reward = float(len(self._named)) if self._world.graded else None
        return Observation(text, done, api_calls=("game.name",), ending=self._world.ending, reward=reward)

    def evaluate(self) -> Evaluation:
        assert not self.closed
        wishes = {"named something": bool(self._named), "even number": len(self._named) % 2 == 0}
        met, unmet = (tuple(wish for wish, holds in wishes.items() if holds is wanted) for wanted in (True, False))
        return Evaluation(met, unmet, score=0.125 if self._world.graded else None)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._world.count(-1)


@dataclass
class CountingGame:
    """A small real world. Faults come by the episode's seed, so that a retry may succeed."""

    task_count: int = 6
    pause_s: float = 0.0
    """A turn takes it."""
    chatter: int = 1
    """Lines of an observation."""
    ending: str = ""
    """Ending of every observation."""
    graded: bool = False
    """Whether turns earn what is named so far, and an episode scores 0.125."""
    brittle: Sequence[str] = ()
    endless: Sequence[str] = ()
    broken: Sequence[str] = ()
    unopenable: Sequence[str] = ()
    open_now: int = 0
    most_open: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tasks(self, split: Split) -> list[Task]:
        return [
            Task(f"t{index}", f"s{index // 3}", 1 + index % 2, split, "Name letters.")
            for index in range(self.task_count)
        ]

    def open(self, task_id: str, seed: int) -> Count:
        if task_id in self.unopenable:
            raise WorldFault("no table is free")
        self.count(1)
        return Count(self, task_id, seed)

    def count(self, change: int) -> None:
        with self._lock:
            self.open_now += change
            self.most_open = max(self.most_open, self.open_now)

    def close(self) -> None:
        pass


def _tokenizer() -> PreTrainedTokenizerFast:
    letters = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", additional_special_tokens=["<|im_start|>"]
    )
    fast.chat_template = TEMPLATE
    return fast


def _model(context: int) -> Qwen2ForCausalLM:
    sizes = {"vocab_size": 258, "intermediate_size": 32, "num_key_value_heads": 1}
    model = tiny_qwen2(1, max_position_embeddings=context, **sizes)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8 if weight.ndim > 1 else 1)
    return model


@pytest.fixture
def chat() -> ChatFormat:
    return ChatFormat(_tokenizer())


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return _tokenizer()


@pytest.fixture
def model() -> Qwen2ForCausalLM:
    return _model(512)


@pytest.fixture
def long_model() -> Qwen2ForCausalLM:
    return _model(4096)


@pytest.fixture
def engine() -> TransformersEngine:
    return TransformersEngine(_model(512))


@pytest.fixture
def short_engine() -> TransformersEngine:
    return TransformersEngine(_model(90))


@pytest.fixture
def game() -> type[CountingGame]:
    return CountingGame


@pytest.fixture
def settings() -> PlaySettings:
    limits = AgentLimits(max_turns=4, max_tokens_per_turn=10, max_observation_tokens=40)
    return PlaySettings(temperature=1.0, limits=limits, max_concurrent_episodes=16, world_retries=1)


@pytest.fixture
def params() -> Params:
    collection: dict[str, Any] = {"tasks_per_iteration": 3, "rollouts_per_task": 4, "max_concurrent_episodes": 8}
    collection["limits"] = {"max_turns": 2, "max_tokens_per_turn": 16, "max_observation_tokens": 60}
    collection["early_stop"] = {"min_per_task": 2, "share": 0.9}
    content: dict[str, Any] = {"iterations": 2}
    return parse_params({**content, "policy": {"device": "cpu"}, "collection": collection}, "params.yaml")


@pytest.fixture
def context(
    tmp_path: Path, params: Params, long_model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> StageContext[CollectionInputs]:
    """Everything that stands before the first collection: pocketworld, a random tiny policy, its initial adapter."""
    layout = Layout(tmp_path)
    prepare_world_folder(params.world, layout.world)
    long_model.save_pretrained(layout.base_policy)
    tokenizer.save_pretrained(layout.base_policy)
    config: PolicyConfig = params.policy
    save_policy(
        trainable_policy(load_base_model(layout.base_policy, config), config, None, seed=0), layout.policy("i000")
    )
    filter_tasks(StageContext(layout, TaskFilterInputs.of(params)))
    return StageContext(layout, CollectionInputs.of(params), "i001")
