"""Estimate what a profile needs before money is spent on it.

Figures come from tasks/core/capacity, a model of formulas and stated assumptions that was checked on a CPU, and on a
GPU for the learner alone.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.configure import params_in, params_of
from tasks.core.capacity.api_cost import api_cost
from tasks.core.capacity.duration import Playing
from tasks.core.capacity.hardware import HARDWARE
from tasks.core.capacity.known_models import model_config
from tasks.core.capacity.pilot import pilot_coverage, pilot_facts
from tasks.core.capacity.plan import Plan, make_plan
from tasks.core.config.chat_api import Traffic
from tasks.core.config.engine import ChatApiSection
from tasks.core.config.params import Params
from tasks.core.policies.positions import limited_context

HOUR = 3600.0


@dataclass(frozen=True)
class Question:
    """A profile to plan, and the devices to plan it for."""

    profiles: Sequence[str] = ()
    """Stacked from left to right; none: params.yaml as it is."""
    settings: Sequence[str] = ()
    hardware: str | None = None
    """A key of HARDWARE; None: by the parameters."""
    gpus: int | None = None
    pilot: Path | None = None
    """A table of rollouts, whose success rates say how many rollouts per task carry a signal."""
    wanted_share: float = 0.8


def planned(question: Question, root: Path) -> tuple[list[str], list[str]]:
    """Return the plan in lines, and what does not fit, a line each. Raises ValueError for what cannot be planned."""
    name = " ".join(question.profiles or ["params.yaml"])
    params = params_of(name, question.settings) if question.profiles else params_in(root / name, question.settings)
    config = model_config(params.policy.source, root)
    if params.policy.context_length is not None:
        config = limited_context(config, params.policy.context_length)
    hardware = HARDWARE[question.hardware or default_hardware(params)]
    pilot = pilot_coverage(question.pilot) if question.pilot else None
    plan = make_plan(params, config, hardware, question.gpus or params.update.distributed.size)
    world, started = params.world.name, params.update.distributed.size
    if isinstance(params.engine, ChatApiSection):
        title = f"{name}: {params.engine.chat_api.request.model} behind an API in {world}"
        return [title, *_lines(api_facts(plan, params.engine.chat_api.traffic))], []
    lines = [f"{name}: {params.policy.source} in {world}, on {plan.gpus} x {plan.hardware.name}"]
    if plan.gpus != started:
        lines.append(
            f"note: these parameters start {started} of {plan.gpus} ranks; set update.distributed (ranks x nodes)"
        )
    found = pilot_facts(pilot, plan.load.collected, question.wanted_share) if pilot else ()
    return [*lines, *_lines(facts(plan)), *_lines(found)], plan.warnings()


def default_hardware(params: Params) -> str:
    """Return the key in HARDWARE to plan for where the command line names none."""
    device = params.policy.device.partition(":")[0]
    on_cpu = device == "cpu" or (device == "auto" and params.policy.dtype == "float32")
    return "cpu" if on_cpu else "h100"


def _lines(titled: Iterable[tuple[str, str]]) -> Iterator[str]:
    return (f"  {title:22}{text}" for title, text in titled)


def api_facts(plan: Plan, traffic: Traffic) -> Iterator[tuple[str, str]]:
    """Yield the plan of a model that is scored behind an API."""
    found, load = api_cost(plan.load, traffic), plan.load
    yield "rollouts", f"{load.evaluated:,} x {load.evaluations} on dev, {load.scored:,} to score"
    yield "requests", f"{found.requests:,}; at least {found.minutes:,.0f} min by the rate limits of the params"
    tokens = f"{found.prompt_tokens / 1e6:,.2f} million of prompts, {found.answer_tokens / 1e6:,.2f} million sampled"
    yield "tokens", f"{tokens} (by our tokenizer, for episodes as long as the trained policy's)"
    yield "cost", f"{found.usd:,.2f} USD at the prices of the params, nothing cached"


def facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the plan as (title, text)."""
    load = plan.load
    mean = load.episodes
    yield "parameters", f"{plan.parameters:,}"
    yield (
        "longest rollout",
        f"{plan.longest_rollout:,} tokens; the learner passes {plan.longest_pack:,} positions at once",
    )
    yield "mean episode", f"{mean.tokens:,.0f} tokens, {mean.sampled:,.0f} of them sampled ({mean.source})"
    yield (
        "rollouts",
        f"{load.collected:,} x {load.collections} collections, {load.evaluated:,} x {load.evaluations} on dev",
    )
    yield "", f"{load.scored:,} to score; {load.tokens / 1e6:,.1f} million tokens in all"
    yield "FLOPs", f"{plan.flops:.2e}; one update {plan.update_flops:.2e}"
    yield from _memory(plan)
    yield from _times(plan)
    parts = ", ".join(f"{name} {_size(value)}" for name, value in plan.disk.items())
    yield "disk", f"{_size(sum(plan.disk.values()))}: {parts}; twice that where links are not possible"


def _memory(plan: Plan) -> Iterator[tuple[str, str]]:
    engines = plan.engines
    if plan.load.iterations:
        parts = ", ".join(f"{name} {_size(value)}" for name, value in vars(plan.learner).items() if value)
        yield "learner, per device", f"{_size(plan.learner.total)}: {parts}"
    weights, caches = engines.memory.loaded, plan.cache_bytes
    yield (
        "engine, per device",
        f"{_size(weights + caches)}: weights {_size(weights)}, caches of episodes {_size(caches)}",
    )
    yield "", f"{plan.live:,} episodes at once; there is room for {engines.room:,} of mean length"
    shared = "take turns" if plan.releases_device else "stay loaded side by side"
    yield "", f"replicas: {engines.replicas}, each on {engines.tensor_parallel}; learner and engine {shared}"


def _times(plan: Plan) -> Iterator[tuple[str, str]]:
    if plan.load.iterations:
        rollouts = f"rollouts {_playing(plan.collecting)}"
        whole = _time(plan.collecting.total + plan.updating_s)
        yield "one iteration", f"{whole}: {rollouts}, update {_time(plan.updating_s)}"
    yield "one evaluation", _playing(plan.evaluating)
    yield "scoring", _playing(plan.scoring)
    parts = {name.replace("_", " "): value for name, value in vars(plan.overheads).items() if name != "copies"}
    yield "beside the work", f"{_time(plan.overheads.total)}: {', '.join(f'{n} {_time(s)}' for n, s in parts.items())}"
    yield "", f"copies into DVC's cache, where links are not possible: {_time(plan.overheads.copies)} more"
    yield "in all", f"{_time(plan.seconds)}, {plan.seconds / HOUR * plan.gpus:,.2f} device hours"


def _playing(part: Playing) -> str:
    return f"{_time(part.total)} (read {_time(part.reading)}, sample {_time(part.sampling)}, world {_time(part.world)})"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def _size(count: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count / 1e3:,.1f} KB"


if __name__ == "__main__":
    from flows.moved import moved

    moved("plan", [word for word in sys.argv[1:] if word != "--profile"])
