"""LOOP (Leave-One-Out PPO, arXiv 2502.01600) in one file, from rollouts to the update.

    .ci/env python docs/loop_in_one_file.py          (learns pocketworld in a few minutes on one core)

For readers who know PyTorch and not reinforcement learning. It uses the project's interfaces: a World has tasks and
plays text against them, an Engine samples tokens. What the pipeline adds around this is not the algorithm: packing, a
key-value cache, files and their checks, resuming, many machines. tests/test_loop_in_one_file.py holds loss and gradient
against the pipeline's learner.

How LOOP differs from supervised fine-tuning: the model writes its own training texts (rollouts), the world says how
good each is (a return in [0, 1]), and each token becomes more or less likely by how much better or worse its rollout
did than the other rollouts of the same task (its advantage). How it differs from PPO: the other rollouts are the
baseline, so there is no value network.
"""

import random
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasks.core.interfaces.engine import Engine, GenerationRequest, SamplingSettings
from tasks.core.interfaces.world import Episode, Task, World

TEMPERATURE = 1.0  # of sampling; the learner divides its logits by it too, so that both mean the same distribution
MAX_TURNS, MAX_TOKENS_PER_TURN = 12, 128
TASKS, ROLLOUTS_PER_TASK = 24, 6  # rollouts of one task are each other's baseline
EPOCHS, MINIBATCH = 2, 32
CLIP = 0.1
LEARNING_RATE, MAX_GRAD_NORM = 1e-3, 0.1
MIN_ABSOLUTE_ADVANTAGE = 0.01


@dataclass
class Rollout:
    """One conversation of T tokens, as the engine saw and sampled it. No text is ever tokenized a second time."""

    name: str
    task: Task
    episode: Episode
    ids: list[int] = field(default_factory=list)
    """[T]"""
    is_sampled: list[bool] = field(default_factory=list)
    """[T] the tokens that the policy wrote; prompt and observations are only read."""
    turns: int = 0
    episode_return: float = 0.0
    advantage: float = 0.0


def play(world: World, engine: Engine, chat: Any, tasks: Sequence[Task], seed: int) -> list[Rollout]:
    """Play every task ROLLOUTS_PER_TASK times, all at once. `chat` turns messages into ids and ids into text."""
    done: list[Rollout] = []
    live: dict[str, Rollout] = {}
    for task in tasks:
        for number in range(ROLLOUTS_PER_TASK):
            episode = world.open(task.task_id, seed)
            rollout = Rollout(f"{task.task_id}/{number}", task, episode)
            _append(rollout, chat.prompt_ids(episode.prompt), sampled=False)
            live[rollout.name] = rollout
            _ask(engine, chat, rollout, seed)
    while live:
        for turn in engine.collect():  # the turns that are complete by now
            rollout = live[turn.sequence_id]
            ids = chat.kept_ids(turn.token_ids)
            _append(rollout, ids, sampled=True)
            observation = rollout.episode.step(chat.answer(ids))
            rollout.turns += 1
            if not observation.done and rollout.turns < MAX_TURNS:
                text = observation.text + observation.ending
                _append(rollout, chat.continuation_ids(text, closed=chat.closes(ids)), sampled=False)
                _ask(engine, chat, rollout, seed)
                continue
            # An episode that ran out of turns counts as a failure, whatever its state.
            rollout.episode_return = rollout.episode.evaluate().episode_return if observation.done else 0.0
            rollout.episode.close()
            engine.release(rollout.name)
            done.append(live.pop(rollout.name))
    return sorted(done, key=lambda rollout: rollout.name)


def _ask(engine: Engine, chat: Any, rollout: Rollout, seed: int) -> None:
    settings = SamplingSettings(TEMPERATURE, MAX_TOKENS_PER_TURN, chat.stop_ids)
    turn_seed = zlib.crc32(f"{seed}/{rollout.name}/{rollout.turns}".encode())
    engine.submit(GenerationRequest(rollout.name, rollout.ids, settings, turn_seed))


def _append(rollout: Rollout, ids: Sequence[int], *, sampled: bool) -> None:
    rollout.ids = [*rollout.ids, *ids]  # a new list: the engine may still hold the old one
    rollout.is_sampled += [sampled] * len(ids)


def set_advantages(rollouts: Sequence[Rollout]) -> None:
    """Give each rollout its return minus the mean return of the others of its task (LOOP, eq. 3)."""
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.task.task_id, []).append(rollout)
    for group in groups.values():
        total = sum(rollout.episode_return for rollout in group)
        for rollout in group:
            others = (total - rollout.episode_return) / (len(group) - 1)
            rollout.advantage = rollout.episode_return - others


def logprobs(policy: nn.Module, rollouts: Sequence[Rollout]) -> tuple[Tensor, Tensor]:
    """Return the log-prob [P] of each sampled token of the rollouts, and the index [P] of its rollout."""
    length = max(len(rollout.ids) for rollout in rollouts)
    ids = torch.tensor([rollout.ids + [0] * (length - len(rollout.ids)) for rollout in rollouts])  # (R, L)
    sampled = torch.tensor([r.is_sampled + [False] * (length - len(r.ids)) for r in rollouts])  # (R, L)
    # Padding is on the right and attention is causal, so no real token ever sees it.
    logits = policy(input_ids=ids, use_cache=False).logits[:, :-1].float() / TEMPERATURE  # (R, L - 1, V)
    every = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]  # a token is predicted one place before it
    where = sampled[:, 1:]
    return every[where], where.nonzero()[:, 0]


def loop_loss(new: Tensor, old: Tensor, advantages: Tensor, rollout_ids: Tensor, divisor: int) -> Tensor:
    """Return LOOP's loss (eq. 6): log-probs new and old [P], advantages [P]; each rollout counts alike.

    The importance weight new / old says how far the policy has moved since it sampled the token. Where it has moved far
    enough in the direction of the advantage, the clip takes the gradient away: no step is longer than can be trusted.
    """
    weights = (new - old).exp()
    bounded = weights.clamp(1 / (1 + CLIP), 1 + CLIP)
    values = torch.minimum(weights * advantages, bounded * advantages)
    lengths = torch.bincount(rollout_ids).to(values)
    return -(values / lengths[rollout_ids]).sum() / divisor


def update(policy: nn.Module, optimizer: torch.optim.Optimizer, rollouts: list[Rollout], order: random.Random) -> None:
    """Make EPOCHS passes over the rollouts that say something, one optimizer step for each minibatch."""
    useful = [rollout for rollout in rollouts if abs(rollout.advantage) >= MIN_ABSOLUTE_ADVANTAGE]
    with torch.no_grad():  # "old": the policy that sampled, whatever the steps below make of it
        old = {rollout.name: logprobs(policy, [rollout])[0] for rollout in useful}
    for _ in range(EPOCHS):
        order.shuffle(useful)
        for start in range(0, len(useful), MINIBATCH):
            part = useful[start : start + MINIBATCH]
            new, rollout_ids = logprobs(policy, part)
            advantages = torch.tensor([rollout.advantage for rollout in part])[rollout_ids]
            before = torch.cat([old[rollout.name] for rollout in part])
            loop_loss(new, before, advantages, rollout_ids, MINIBATCH).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRAD_NORM)
            optimizer.step()
            optimizer.zero_grad()


def train(
    world: World, engine: Engine, chat: Any, policy: nn.Module, save: Any, iterations: int, seed: int
) -> list[float]:
    """Alternate between playing and learning. `save` writes the policy where the engine can load it.

    Returns the mean return of each iteration's rollouts.
    """
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    optimizer, draw, returns = torch.optim.AdamW(trained, lr=LEARNING_RATE), random.Random(seed), []
    easy = [task for task in world.tasks("train") if task.difficulty < 3]  # the paper trains on difficulty 1 and 2
    for iteration in range(iterations):
        engine.load_adapter(save(policy))
        rollouts = play(world, engine, chat, draw.sample(easy, TASKS), seed + iteration)
        set_advantages(rollouts)
        returns.append(sum(rollout.episode_return for rollout in rollouts) / len(rollouts))
        print(f"iteration {iteration}: mean return {returns[-1]:.2f}", flush=True)
        update(policy, optimizer, rollouts, draw)
    return returns


def main(folder: Path, iterations: int = 8) -> list[float]:
    """Train the embedded policy in pocketworld. The imports below only open files; the algorithm is above."""
    from tasks.core.config.policy import PolicyConfig
    from tasks.core.config.world import WorldSection
    from tasks.core.engines.transformers.engine import TransformersEngine
    from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
    from tasks.core.policies.chat_settings import load_chat_format
    from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy

    base, config, world_config = Path("data/base_policies/pocket"), PolicyConfig(), WorldSection.of("pocketworld")
    prepare_world_folder(world_config, folder / "world")
    world, engine = open_world(world_config, folder / "world"), TransformersEngine(load_base_model(base, config))

    def save(policy: nn.Module) -> Path:
        save_policy(policy, folder / "policy")
        return folder / "policy"

    try:
        policy = trainable_policy(load_base_model(base, config), config, None, seed=0)
        return train(world, engine, load_chat_format(base), policy, save, iterations, seed=0)
    finally:
        engine.close()
        world.close()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
