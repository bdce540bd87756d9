"""TRL's side of reward_vs_trl.py: GRPOTrainer with a `rollout_func` that plays pocketworld.

python tests/benchmarks/reward_trl.py ROOT PARAMS_JSON     (writes ROOT/trl_curve.json)
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from processor_time import Clock
from trl import GRPOConfig, GRPOTrainer

from tasks.core.config.params import Params
from tasks.core.interfaces.engine import Generation, GenerationRequest
from tasks.core.interfaces.world import Task
from tasks.core.interfaces.world_kind import open_world
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.policies.loading import load_base_model, load_tokenizer, trainable_policy
from tasks.core.records.layout import Layout
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.seeding import derive_seed

Row = dict[str, Any]


class TrlEngine:
    """The trainer's own sampling behind loopline's contract for engines: all waiting turns in one call."""

    name = "trl"

    def __init__(self, trainer: GRPOTrainer, context_length: int) -> None:
        self.trainer, self.context_length = trainer, context_length
        self.version = version("trl")
        self._queue: dict[str, GenerationRequest] = {}

    def load_adapter(self, path: Path | None) -> None:
        self._queue.clear()

    def submit(self, request: GenerationRequest) -> None:
        self._queue[request.sequence_id] = request

    def collect(self) -> list[Generation]:
        queue, self._queue = list(self._queue.values()), {}
        if not queue:
            return []
        prompts = [list(request.prompt_ids) for request in queue]
        turns, _ = self.trainer._generate_single_turn(prompts, None, {}, num_generations=1)
        return [generation(request, ids) for request, ids in zip(queue, turns, strict=True)]

    def release(self, sequence_id: str) -> None:
        self._queue.pop(sequence_id, None)

    def close(self) -> None:
        self._queue.clear()


def generation(request: GenerationRequest, ids: Sequence[int]) -> Generation:
    """The turn, whose log-probs TRL recomputes."""
    reason = "stop" if ids[-1] in request.sampling.stop_ids else "length"
    return Generation(request.sequence_id, tuple(ids), (0.0,) * len(ids), reason)


class PocketworldTraining:
    """World, settings and policy of the trainer's rollouts, and the curve."""

    def __init__(self, root: Path, params: Params) -> None:
        layout = Layout(root)
        self.params = params
        self.chat = load_chat_format(layout.base_policy)
        self.world = open_world(params.world, layout.world)
        easy = [task for task in self.world.tasks("train") if task.difficulty <= params.tasks.max_difficulty]
        self.tasks = {task.task_id: task for task in easy}
        self.curve: list[dict[str, float]] = []
        self.clock: Clock | None = None
        model = load_base_model(layout.base_policy, params.policy)
        self.trainer = GRPOTrainer(
            model=trainable_policy(model, params.policy, None, derive_seed(params.seed, "policy")),
            reward_funcs=lambda episode_return, **_: episode_return,
            args=trainer_settings(params, list(self.chat.stop_ids)),
            train_dataset=Dataset.from_list([{"prompt": name} for name in self.tasks]),
            processing_class=load_tokenizer(layout.base_policy),
            rollout_func=self.rollouts,
        )
        self.engine = TrlEngine(self.trainer, model.config.max_position_embeddings)

    def rollouts(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        """TRL's `rollout_func`: a rollout for every prompt, which is a task's id; groups lie side by side."""
        self.note()
        number, played = len(self.curve), self.params.collection
        planned = self.planned([self.tasks[name] for name in prompts], ("collection", number))
        settings = self.play_settings(played.temperature)
        rows = {(row["task_id"], row["rollout_index"]): row for row in self.play(planned, settings)}
        ordered = [rows[rollout.task.task_id, rollout.rollout_index] for rollout in planned]
        return {name: [columns(row)[name] for row in ordered] for name in columns(ordered[0])}

    def note(self) -> None:
        """Add a point to the curve: the policy as it is now."""
        clock = self.clock = self.clock or Clock()
        seconds, processor = clock.read()
        with clock.paused():
            self.curve.append({"s": seconds, "processor_s": processor, "dev_tgc": self.dev_tgc()})

    def dev_tgc(self) -> float:
        tasks = [task for task in self.world.tasks("dev") if task.task_id not in self.params.tasks.denylist]
        warm, temperature = self.trainer.generation_config.temperature, self.params.evaluation.temperature
        self.trainer.generation_config.temperature = temperature
        rows = self.play(self.planned(tasks, ("evaluation",)), self.play_settings(temperature))
        self.trainer.generation_config.temperature = warm
        return 100 * sum(row["success"] for row in rows) / len(rows)

    def planned(self, tasks: Sequence[Task], names: tuple[str | int, ...]) -> list[PlannedRollout]:
        seed = derive_seed(self.params.seed, *names)
        return [PlannedRollout(task, index, derive_seed(seed, index)) for index, task in enumerate(tasks)]

    def play(self, planned: list[PlannedRollout], settings: PlaySettings) -> list[Row]:
        return play_rollouts(self.world, self.engine, self.chat, planned, settings, policy=None)

    def play_settings(self, temperature: float) -> PlaySettings:
        played = self.params.collection
        return PlaySettings(temperature, played.limits, played.max_concurrent_episodes, played.world_retries)


def columns(row: Row) -> dict[str, Any]:
    """A rollout as TRL takes it: prompt, then what was sampled and (mask 0) what the world said."""
    start = row["policy_mask"].index(True)
    return {
        "prompt_ids": row["token_ids"][:start],
        "completion_ids": row["token_ids"][start:],
        "logprobs": [0.0] * (len(row["token_ids"]) - start),
        "env_mask": [int(sampled) for sampled in row["policy_mask"][start:]],
        "episode_return": row["return"],
    }


def trainer_settings(params: Params, stop_ids: list[int]) -> GRPOConfig:
    """The default's figures in TRL's words. Its micro-batch is the fastest that divides."""
    played, update, minibatch = params.collection, params.update, params.update.minibatch
    rollouts = played.tasks_per_iteration * played.rollouts_per_task
    micro_batch = 12
    return GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        seed=params.seed,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=minibatch // micro_batch,
        steps_per_generation=rollouts // micro_batch,
        num_generations=played.rollouts_per_task,
        num_iterations=update.epochs,
        max_steps=params.iterations * update.epochs * rollouts // minibatch + 1,
        max_completion_length=played.limits.max_tokens_per_turn,
        generation_kwargs={"eos_token_id": stop_ids, "top_k": 0},
        temperature=played.temperature,
        loss_type="grpo",
        scale_rewards="none",
        epsilon=update.loss.clip_epsilon,
        beta=0.0,
        learning_rate=update.learning_rate,
        lr_scheduler_type="constant",
        weight_decay=update.weight_decay,
        max_grad_norm=update.max_grad_norm,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
    )


def main() -> None:
    root, params = Path(sys.argv[1]), Params.model_validate_json(sys.argv[2])
    training = PocketworldTraining(root, params)
    torch.set_num_threads(1)  # the faster of one and two
    training.trainer.train()
    (root / "trl_curve.json").write_text(json.dumps(training.curve), encoding="utf-8")


if __name__ == "__main__":
    main()
