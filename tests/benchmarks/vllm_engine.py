"""The vLLM engine beside vLLM's own offline throughput (`LLM.generate`): same prompts, seeds, adapter and machine.

    python tests/benchmarks/vllm_engine.py

Rollouts of pocketworld are played through the engine (`pipeline`: agent loop, world and server on the same cores, every
rollout to its end). Then the same turns are sampled again with the same seeds, in both ways, by both:

* turn by turn, as conversations are: the engine is sent a conversation's next turn when its last is done; offline, all
  first turns are one batch, then all second ones;
* at once, all turns in one batch, which no conversation allows.

All take turns within a round; ratios are medians over the rounds. `pipeline` is compared with `offline_first_time`,
turn by turn: both meet the prompts for the first time, all else finds them cached. `small` is the embedded policy,
where a turn costs as much to hand over as to sample; `larger` a fresh Qwen2, where the model's own time counts.
`mean_logprob_difference`: engine against a full forward pass in float32, at temperature 1.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import psutil
import torch
from result_file import write_result
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from tasks.core.capacity.memory import Sharing
from tasks.core.config.collection import AgentLimits
from tasks.core.config.params import load_params
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.world import WorldSection
from tasks.core.engines.vllm.engine import VllmEngine
from tasks.core.engines.vllm.launching import allowed_rank
from tasks.core.engines.vllm.opening import launch_specs, open_vllm
from tasks.core.engines.vllm.probe_records import LocalModel
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.interfaces.engine import GenerationRequest, SamplingSettings
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import device, load_base_model, load_tokenizer, save_policy, trainable_policy
from tasks.core.records.delivery_probe import mean_difference
from tasks.core.rollouts.planning import PlaySettings, draw_tasks, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats
from tasks.core.seeding import derive_seed

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "data/base_policies/pocket"
POLICY = PolicyConfig(device="cpu")
SERVERS = VllmConfig()
COLLECTION = load_params(ROOT / "params.yaml").collection
LARGER_MODEL = {"hidden_size": 640, "intermediate_size": 2560, "num_hidden_layers": 12, "num_attention_heads": 10}
CHECKED = 40


class Load(NamedTuple):
    """How much is played in a round."""

    tasks: int
    limits: AgentLimits


SMALL_LOAD = Load(COLLECTION.tasks_per_iteration, COLLECTION.limits)
LARGER_LOAD = Load(6, AgentLimits(max_turns=3, max_tokens_per_turn=20))
"""A fresh model never ends a turn by itself."""


class Turn(NamedTuple):
    """One assistant turn, asked for in the same words of both."""

    conversation: str
    prompt: list[int]
    max_tokens: int
    stop_ids: tuple[int, ...]
    seed: int


class Rate(NamedTuple):
    tokens: int
    seconds: float
    processor_s: float
    """Processor seconds of all processes but the world's."""

    @property
    def per_s(self) -> float:
        return self.tokens / self.seconds


class Contest:
    """Our engine and an offline vLLM, loaded with one base model and one adapter."""

    def __init__(self, base_policy: Path, adapter: Path, engine: VllmEngine, offline: "subprocess.Popen[str]") -> None:
        self.base_policy, self.adapter, self.engine = base_policy, adapter, engine
        self._offline = offline

    def offline(self, batches: list[list[Turn]]) -> Rate:
        before = psutil.Process(self._offline.pid).cpu_times()
        answer = ask(self._offline, [[turn[1:] for turn in batch] for batch in batches])
        after = psutil.Process(self._offline.pid).cpu_times()
        return Rate(answer["tokens"], answer["seconds"], sum(after[:2]) - sum(before[:2]))

    def sampled(self, batches: list[list[Turn]]) -> Rate:
        """The engine on conversations, each turn sent when the one before it is done."""
        waiting: dict[str, list[Turn]] = {}
        for turn in (turn for batch in batches for turn in batch):
            waiting.setdefault(turn.conversation, []).append(turn)
        return self._timed(lambda: self._converse(waiting))

    def at_once(self, batches: list[list[Turn]]) -> Rate:
        """The engine on all turns of all conversations."""
        turns = [turn for batch in batches for turn in batch]
        alone = {f"{place}": [turn._replace(conversation=f"{place}")] for place, turn in enumerate(turns)}
        return self._timed(lambda: self._converse(alone))

    def played(
        self, play: Callable[[], tuple[list[dict[str, Any]], CollectionStats]]
    ) -> tuple[list[dict[str, Any]], Rate]:
        before = self._processor_s()
        rows, stats = play()
        return rows, Rate(stats.generated_tokens, stats.wall_s, self._processor_s() - before)

    def end_offline(self) -> None:
        self._offline.kill()
        self._offline.wait()

    def _converse(self, waiting: dict[str, list[Turn]]) -> tuple[int, float]:
        tokens, started = 0, perf_counter()
        for turns in waiting.values():
            self.submit(turns.pop(0))
        while generations := self.engine.collect():
            for generation in generations:
                tokens += len(generation.token_ids)
                if waiting[generation.sequence_id]:
                    self.submit(waiting[generation.sequence_id].pop(0))
        seconds = perf_counter() - started
        for conversation in waiting:
            self.engine.release(conversation)
        return tokens, seconds

    def submit(self, turn: Turn) -> None:
        settings = SamplingSettings(1.0, turn.max_tokens, turn.stop_ids)
        self.engine.submit(GenerationRequest(turn.conversation, turn.prompt, settings, turn.seed))

    def _timed(self, work: Callable[[], tuple[int, float]]) -> Rate:
        before = self._processor_s()
        tokens, seconds = work()
        return Rate(tokens, seconds, self._processor_s() - before)

    def _processor_s(self) -> float:
        me = psutil.Process()
        servers = [child for child in me.children(recursive=True) if "vllm" in " ".join(child.cmdline()).lower()]
        mine = [process for process in (me, *servers) if process.pid != self._offline.pid]
        return float(sum(sum(process.cpu_times()[:2]) for process in mine))


@contextmanager
def contest(
    base_policy: Path, folder: Path, chat: ChatFormat, policy: PolicyConfig = POLICY, servers: VllmConfig = SERVERS
) -> Iterator[Contest]:
    adapter = folder / "adapter"
    write_adapter(base_policy, adapter, policy)
    engine = open_vllm(servers, policy, base_policy, chat)
    engine.load_adapter(adapter)
    offline = start_offline(base_policy, adapter, folder / "offline.log", policy, servers)
    one = Contest(base_policy, adapter, engine, offline)
    try:
        yield one
    finally:
        engine.close()
        one.end_offline()


def start_offline(
    base_policy: Path, adapter: Path, log: Path, policy: PolicyConfig, servers: VllmConfig
) -> "subprocess.Popen[str]":
    """With the settings and variables of the server, see `tasks.core.engines.vllm.launching`."""
    kind = device(policy).type
    (spec,) = launch_specs(servers, policy, base_policy, kind, Sharing(False, servers.memory_share, "offline"))
    model = {
        "model": str(base_policy.resolve()),
        "dtype": spec.dtype,
        "max_num_seqs": spec.sequences,
        "max_model_len": spec.context_length,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "skip_tokenizer_init": True,
        "enable_lora": True,
        "max_lora_rank": allowed_rank(policy.lora.rank),
        "max_loras": 1,
        "enable_prefix_caching": True,
    }
    if kind == "cpu":
        model |= {"block_size": 32, "enforce_eager": True, "enable_chunked_prefill": False}
    else:
        model |= {"gpu_memory_utilization": spec.memory_share}
    process = subprocess.Popen(
        [str(spec.python), str(Path(__file__).with_name("vllm_offline.py"))],
        env=spec.variables(log.parent / "cache"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log.open("w"),
        text=True,
    )
    tell(process, {"model": model, "adapter": str(adapter)})
    assert process.stdout is not None and process.stdout.readline() == "ready\n", log.read_text()[-2000:]
    return process


def tell(process: "subprocess.Popen[str]", message: object) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def ask(process: "subprocess.Popen[str]", message: object) -> Any:
    tell(process, message)
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def write_adapter(base_policy: Path, folder: Path, config: PolicyConfig, seed: int = 1) -> None:
    """One with B not zero."""
    here = config.model_copy(update={"device": "cpu"})
    policy = trainable_policy(load_base_model(base_policy, here), here, None, seed)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.01, generator=generator)
    save_policy(policy, folder)


def larger_policy(folder: Path) -> Path:
    torch.manual_seed(0)
    small = json.loads((SMALL / "config.json").read_text())
    shared = {name: small[name] for name in ("vocab_size", "max_position_embeddings")}
    config = Qwen2Config(**LARGER_MODEL, **shared, num_key_value_heads=2, tie_word_embeddings=True)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(SMALL / file, folder)
    return folder


def play(
    one: Contest, world: World, chat: ChatFormat, load: Load, seed: int
) -> tuple[list[dict[str, Any]], CollectionStats]:
    """Training rollouts, every one to its end."""
    tasks = [task for task in world.tasks("train") if task.difficulty < 3]
    drawn = draw_tasks(tasks, [1.0] * len(tasks), load.tasks, seed)
    planned, stats = plan_rollouts(drawn, COLLECTION.rollouts_per_task, seed), CollectionStats()
    settings = replace(PlaySettings.of_training(COLLECTION), early_stop=None, limits=load.limits)
    return play_rollouts(world, one.engine, chat, planned, settings, policy=one.adapter, stats=stats), stats


def turns_of(rows: list[dict[str, Any]], chat: ChatFormat, limits: AgentLimits, context: int) -> list[list[Turn]]:
    """The turns of the rollouts, first ones first, with the seeds that they were sampled with."""
    batches: list[list[Turn]] = []
    for row in rows:
        for number in range(max(row["turn_index"], default=-1) + 1):
            prompt = row["token_ids"][: row["turn_index"].index(number)]
            limit = min(limits.max_tokens_per_turn, context - len(prompt))
            seed = derive_seed(row["seed"], row["world_retries"], "turn", number)
            batches += [[]] if len(batches) == number else []
            batches[number].append(Turn(f"{row['task_id']}#{row['rollout_index']}", prompt, limit, chat.stop_ids, seed))
    return batches


def one_round(
    one: Contest, world: World, chat: ChatFormat, load: Load, seed: int
) -> tuple[dict[str, Rate], list[Turn]]:
    rows, pipeline = one.played(lambda: play(one, world, chat, load, seed))
    batches = turns_of(rows, chat, load.limits, one.engine.context_length)
    everything = [turn for batch in batches for turn in batch]
    rates = {
        "pipeline": pipeline,
        "offline_first_time": one.offline(batches),
        "offline_turn_by_turn": one.offline(batches),
        "engine_turn_by_turn": one.sampled(batches),
        "offline_at_once": one.offline([everything]),
        "engine_at_once": one.at_once(batches),
    }
    return rates, everything


def summary(one: Contest, world: World, chat: ChatFormat, load: Load, rounds: int) -> dict[str, Any]:
    one_round(one, world, chat, load, seed=0)
    played = [one_round(one, world, chat, load, seed) for seed in range(1, rounds + 1)]
    found, turns = [rates for rates, _ in played], played[-1][1]

    def median(figure: Callable[[dict[str, Rate]], float], digits: int = 2) -> float:
        return round(statistics.median(figure(rates) for rates in found), digits)

    rivals = {
        "pipeline": "offline_first_time",
        "engine_turn_by_turn": "offline_turn_by_turn",
        "engine_at_once": "offline_at_once",
    }
    return {
        "parameters": sum(weight.numel() for weight in load_base_model(one.base_policy, POLICY).parameters()),
        "turns": len(turns),
        "tokens_per_prompt": round(statistics.mean(len(turn.prompt) for turn in turns), 1),
        "tokens_per_turn": round(found[-1]["engine_at_once"].tokens / len(turns), 1),
        "tokens_per_s": {name: median(lambda rates, name=name: rates[name].per_s, 0) for name in found[0]},
        "vs_offline": {
            ours: median(lambda rates, ours=ours, rival=rival: rates[ours].per_s / rates[rival].per_s)
            for ours, rival in rivals.items()
        },
        "processor_ms_per_turn": {
            name: median(lambda rates, name=name: 1000 * rates[name].processor_s / len(turns)) for name in found[0]
        },
        "mean_logprob_difference": logprob_difference(one, turns[:: max(1, len(turns) // CHECKED)]),
    }


def logprob_difference(one: Contest, turns: list[Turn]) -> float:
    """Mean |engine - full forward pass| over the tokens of some turns."""
    local, differences = LocalModel(one.base_policy, POLICY), []
    for turn in turns:
        one.submit(turn)
        for generation in one.engine.collect():
            (full,) = local.logprobs([one.adapter], [*turn.prompt, *generation.token_ids])
            differences.append(mean_difference(full[len(turn.prompt) - 1 :], generation.logprobs))
    return statistics.mean(differences)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the vLLM engine with vLLM's offline throughput.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    logging.set_verbosity_error()
    chat, figures = ChatFormat(load_tokenizer(SMALL)), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare_world_folder(WorldSection.of("pocketworld"), folder / "world")
        world = open_world(WorldSection.of("pocketworld"), folder / "world")
        with contest(SMALL, folder / "small", chat) as one:
            figures["small"] = summary(one, world, chat, SMALL_LOAD, rounds)
        with contest(larger_policy(folder / "model"), folder / "larger", chat) as one:
            figures["larger"] = summary(one, world, chat, LARGER_LOAD, max(1, rounds // 2))
        world.close()
    write_result("vllm_engine", {"rounds": rounds, **figures})


if __name__ == "__main__":
    main()
