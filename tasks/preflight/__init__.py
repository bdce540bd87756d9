"""Stage preflight: prove the model's own function and try one update at the maximum length -> preflight.json.

It is a stage of its own, which collection waits for, because it must catch errors before money is spent. prepare_policy
knows nothing of `update`, and a longer pack or a larger chunk must be tried again without fetching the model again. The
output holds no measurements, so that a repeated preflight does not cause rollouts to be collected again.
"""

import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from safetensors.torch import save_file

from tasks.core.capacity.hardware import GIB
from tasks.core.capacity.memory import LearnerMemory, memory_of, packs_at_once
from tasks.core.capacity.plan import advice
from tasks.core.capacity.workload import longest_rollout
from tasks.core.config.dag import Predecessors, iteration_key
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.stage_inputs import PreflightInputs, UpdateInputs
from tasks.core.config.update import CriticConfig, LossConfig, UpdateConfig
from tasks.core.interfaces.stage import StageContext
from tasks.core.learner.launcher import RankFailed, train_on_ranks
from tasks.core.learner.prompt_information import UNMEASURED
from tasks.core.learner.training import read_batch, train
from tasks.core.learner.update_job import UpdateJob
from tasks.core.policies.checkpoint_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, read_model_config, require
from tasks.core.policies.loading import device, opened
from tasks.core.policies.positions import context_length, require_fixed_rotary
from tasks.core.records.documents import write_document
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import TRAINING_BATCH
from tasks.core.records.tables import write_rows
from tasks.core.records.training import AdvantageSummary, Passes, Preflight
from tasks.core.seeding import derive_seed
from tasks.preflight.engine_proof import prove_engine
from tasks.preflight.twin import make_twin

_VMSTAT = Path("/proc/vmstat")
_DRAWN_STD = 0.02
"""Standard deviation of the drawn B: with A as LoRA draws it, a change of a few percent of the weights."""
Row = dict[str, Any]
"""A row of `records.schemas.TRAINING_BATCH`."""


def longest_batch(length: int, rollouts: int, vocabulary: int, turns: int, seed: int) -> list[Row]:
    """Return `rollouts` rows of random ids whose forward passes have `length` positions each.

    All tokens except the first are the policy's, since those need logits; advantages have both signs, so that gradients
    are not 0.
    """
    rows = []
    for index in range(rollouts):
        generator = np.random.Generator(np.random.PCG64(derive_seed(seed, index)))
        row = {
            "task_id": "preflight",
            "rollout_index": index,
            "turn_index": [-1, *np.sort(generator.integers(0, turns, length)).tolist()],
            "token_ids": generator.integers(0, vocabulary, length + 1).tolist(),
            "policy_mask": [False] + [True] * length,
            "engine_logprobs": [0.0] + [-1.0] * length,
            "sequence_begins": [0],
            "return": 0.0,
            "advantage": 0.5 if index % 2 else -0.5,
        }
        rows.append(row)
    return rows


OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")
"""Messages of torch when memory runs out, on a GPU and on a CPU."""
SEED = 0
"""A seed that memory does not depend on."""
STEPS = 2
"""Number of optimizer steps; the second step finds the optimizer's state in memory."""


class DoesNotFit(RuntimeError):  # noqa: N818
    """A learner that ran out of memory; the message gives the memory needed and the knob to turn."""


def preflight(context: StageContext[PreflightInputs]) -> None:
    """Prove that learner and engine compute the model's own function, and that the longest update fits.

    Both take first a small twin of the base model in float32, which sees what rounding hides, and then a copy of the
    untrained policy, with an adapter that is not zero. The engine in this process samples from them, if the run uses
    this engine. Then the learner finds its fastest exact forward passes and updates the copy on the longest batch that
    the params allow; the copy is thrown away. It passes as many full packs as an update passes at once, and at least
    two, because the second pack finds gradients in memory. On a CPU this number depends on the cores, so preflight.json
    counts the rollouts of one pack of each rank.

    Writes preflight.json; a run that trains nothing tries no update. Raises AnotherFunction, DoesNotFit, ArtifactError
    and what an update raises.
    """
    inputs, layout, ranks = context.inputs, context.layout, context.inputs.distributed.size
    config = read_model_config(layout.base_policy)
    engine = inputs.engine.kind
    if engine.samples_policy:
        require_fixed_rotary(config, str(config.get("model_type")))
    with _trial(layout, inputs.policy) as trial:
        twin = make_twin(layout.base_policy, inputs.policy, trial.root / "twin")
        if engine.samples_policy and engine.in_process:
            if twin:
                twin.prove_engine(inputs.engine)
            prove_engine(trial.base_policy, inputs.policy, trial.policy(iteration_key(0)), inputs.engine)
        fastest = twin.prove_passes(inputs.fold_adapter) if twin and inputs.trains else None
        tried = _try_update(context, trial, config, fastest) if inputs.trains else None
    write_document(layout.preflight, tried or Preflight(positions=0, rollouts=0, ranks=ranks, passes=None))


def _try_update(
    context: StageContext[PreflightInputs], trial: Layout, config: Mapping[str, Any], fastest: Passes | None
) -> Preflight:
    """Make the longest update in the project `trial`, by the `fastest` passes of the twin or slower ones."""
    inputs = context.inputs
    ranks = inputs.distributed.size
    length = longest_rollout(inputs, context_length(config))
    each = max(1, inputs.tokens_per_pack // length)
    rollouts = each * ranks
    played = rollouts * max(2, packs_at_once(inputs, device(inputs.policy).type))
    rows = longest_batch(length, played, int(config["vocab_size"]), inputs.limits.max_turns, SEED)
    started = time.perf_counter()
    write_rows(trial.training_batch(iteration_key(1)), rows, TRAINING_BATCH)
    summary = AdvantageSummary(
        mean_return=0.0,
        group_return_std=0.0,
        rollouts=played,
        finished_rollouts=played,
        kept_rollouts=played,
        end_reasons={"completed": played},
    )
    write_document(trial.advantage_summary(iteration_key(1)), summary)
    with memory_explained(inputs, config, each * length):
        job = _job(inputs, trial.root, played, max(inputs.tokens_per_pack, each * length), fastest)
        if ranks > 1:
            passes = train_on_ranks(job, context.ranks).passes
        else:
            passes = train(job, read_batch(job), context.cache).passes
    took = time.perf_counter() - started
    print(f"preflight: {played // rollouts} x {each * length:,} positions fit, {took:.1f} s{_peak()}")
    return Preflight(positions=each * length, rollouts=rollouts, ranks=ranks, passes=passes)


@contextmanager
def memory_explained(inputs: PreflightInputs, config: Mapping[str, Any], positions: int) -> Iterator[None]:
    """Turn an end for lack of memory into DoesNotFit; leave any other error as it is."""
    killed_before = oom_kills()
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        memory = memory_of(inputs, config, device(inputs.policy).type).learner
        said = any(words in str(error).lower() for words in OUT_OF_MEMORY) or isinstance(error, MemoryError)
        # The kernel's OOM killer sends this signal to a rank, and other senders may, too.
        killed = isinstance(error, RankFailed) and error.ended_by == signal.SIGKILL
        if said or (killed and _lacked_memory(killed_before, memory, inputs)):
            raise DoesNotFit(_explained(error, positions, memory)) from None
        raise


def _job(inputs: PreflightInputs, root: Path, rollouts: int, tokens_per_pack: int, fastest: Passes | None) -> UpdateJob:
    """Return an update with the whole batch in every optimizer step, which moves the weights by next to nothing."""
    base = iteration_key(0)
    update = UpdateConfig(
        loss=LossConfig(kl_coefficient=inputs.needs_reference, entropy_coefficient=inputs.entropy_bonus),
        epochs=STEPS,
        minibatch=rollouts,
        learning_rate=1e-9,
        tokens_per_pack=tokens_per_pack,
        logprob_chunk=inputs.logprob_chunk,
        fold_adapter=inputs.fold_adapter,
        activation_checkpointing=inputs.activation_checkpointing,
        distributed=inputs.distributed,
        critic=CriticConfig(warmup_iterations=0) if inputs.critic else None,
    )
    tried = UpdateInputs(
        previous={iteration_key(1): Predecessors(policy=base, behaviour=base, batch=iteration_key(1))},
        seed=SEED,
        policy=inputs.policy,
        update=update,
        information=UNMEASURED,
        engine=inputs.engine.name,
        temperature=1.0,
        temperatures=(),
        demonstrations=False,
    )
    return UpdateJob(root=root.resolve(), key=iteration_key(1), inputs=tried, passes=fastest, proves_passes=True)


@contextmanager
def _trial(layout: Layout, policy: PolicyConfig) -> Iterator[Layout]:
    """Make a project's folder with the real policy, next to the real artifacts."""
    root = layout.preflight_project
    shutil.rmtree(root, ignore_errors=True)
    trial, untrained = Layout(root), layout.policy(iteration_key(0))
    try:
        trial.base_policy.parent.mkdir(parents=True)
        trial.base_policy.symlink_to(layout.base_policy.resolve(), target_is_directory=True)
        checkpoint = trial.policy(iteration_key(0))
        checkpoint.parent.mkdir(parents=True)
        if policy.trained == "lora":
            shake_adapter(untrained, checkpoint, SEED)
        else:
            checkpoint.symlink_to(untrained.resolve(), target_is_directory=True)
        yield trial
    finally:
        shutil.rmtree(root, ignore_errors=True)


def shake_adapter(source: Path, target: Path, seed: int) -> None:
    """Write the adapter of the checkpoint `source` into the new folder `target`, with B drawn from `seed`.

    An untrained adapter is zero, which would hide whatever is wrong with adapters. The record of the delivery probe,
    which is of other weights, is left behind.
    """
    target.mkdir()
    shutil.copyfile(require(source / ADAPTER_CONFIG), target / ADAPTER_CONFIG)
    generator = torch.Generator().manual_seed(seed)
    with opened(source / ADAPTER_WEIGHTS) as file:
        tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    for name in tensors:
        if ".lora_B." in name:
            tensors[name] = _DRAWN_STD * torch.randn(tensors[name].shape, generator=generator)
    save_file(tensors, target / ADAPTER_WEIGHTS, metadata={"format": "pt"})


def _lacked_memory(killed_before: int | None, memory: LearnerMemory, inputs: PreflightInputs) -> bool:
    """Return whether memory was short, by the kernel's count of kills, else by the plan's memory of ranks."""
    killed = oom_kills()
    if killed is not None and killed_before is not None:
        return killed > killed_before
    return memory.total * inputs.distributed.ranks > float(psutil.virtual_memory().total)


def _explained(error: BaseException, positions: int, memory: LearnerMemory) -> str:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    parts = ", ".join(f"{name} {value / GIB:.2f}" for name, value in vars(memory).items())
    return (
        f"an update on the longest batch ({positions:,} positions in one pass) runs out of memory: {reason}{_peak()}. "
        f"By the plan, each device needs {memory.total / GIB:.2f} GiB ({parts}): {advice(memory)}. No rollout was "
        "collected; `loopline plan` shows what would fit"
    )


def _peak() -> str:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return ""
    total = torch.cuda.get_device_properties(0).total_memory
    return f"; peak {torch.cuda.max_memory_allocated() / GIB:.2f} GiB of {total / GIB:.2f} GiB"


def oom_kills() -> int | None:
    """Return how many processes the kernel has killed for lack of memory since it booted, in all containers.

    None off Linux.
    """
    try:
        lines = _VMSTAT.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
