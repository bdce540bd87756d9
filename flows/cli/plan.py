"""`loopline plan`: estimate what a profile needs before money is spent on it.

Figures come from tasks/core/capacity, a model of formulas and stated assumptions that was checked on a CPU, and on a
GPU for the learner alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli.command import Settings, command, profiles, refusing
from flows.line_width import fitted
from tasks.core.capacity.hardware import GB, HARDWARE

if TYPE_CHECKING:
    from tasks.core.capacity.duration import Playing
    from tasks.core.capacity.plan import Plan
    from tasks.core.config.engine import Rates
    from tasks.core.config.params import Params


HOUR = 3600.0
Hardware = Literal["a10", "a100", "cpu", "h100", "h200", "l4", "rtx3090", "rtx4090"]


@command("plan", "Look")
def plan(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROFILE", autocompletion=profiles, help="The later on top; without one, params.yaml."),
    ] = None,
    *,
    hardware: Annotated[
        Hardware | None,
        typer.Option(help="By default cpu or h100, by policy.device; where that is auto, by policy.dtype."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Devices; by default update.distributed says.")] = None,
    settings: Settings,
    pilot: Annotated[
        Path | None, typer.Option(resolve_path=True, help="A table of rollouts: propose rollouts per task from it.")
    ] = None,
    wanted_share: Annotated[float, typer.Option(help="Share of groups that shall carry a signal.")] = 0.8,
) -> int:
    """Estimate the memory, time and disk that a profile needs.

    It is a model of formulas and stated assumptions, which was checked on a CPU, and on a GPU for the learner alone.
    Exit code 1: it does not fit; 2: it cannot be planned.

    \b
    loopline plan paper rloo --hardware h100 --gpus 16
    loopline plan gpu_small --hardware rtx4090
    loopline plan --pilot data/iterations/i001/rollouts.parquet
    """
    if not 0 < wanted_share < 1:
        raise typer.BadParameter(f"{wanted_share} is not between 0 and 1", param_hint="--wanted-share")
    with refusing(ValueError):
        lines, warnings = planned(Question(names or [], settings, hardware, gpus, pilot, wanted_share), Path.cwd())
    print("\n".join([*lines, *fitted(f"does not fit: {warning}" for warning in warnings)]))
    return 1 if warnings else 0


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
    from flows.params_file import params_in, params_of
    from tasks.core.capacity.known_models import model_config
    from tasks.core.capacity.pilot import pilot_coverage, pilot_facts
    from tasks.core.capacity.plan import make_plan
    from tasks.core.policies.positions import limited_context

    name = " ".join(question.profiles or ["params.yaml"])
    params = params_of(name, question.settings) if question.profiles else params_in(root / name, question.settings)
    config = model_config(params.policy.source, root)
    if params.policy.context_length is not None:
        config = limited_context(config, params.policy.context_length)
    hardware = HARDWARE[question.hardware or default_hardware(params)]
    pilot = pilot_coverage(question.pilot) if question.pilot else None
    plan = make_plan(params, config, hardware, question.gpus or params.update.distributed.size)
    world, started = params.world.name, params.update.distributed.size
    paid = params.engine.kind.price(params.engine.own)
    if paid is not None:
        return [f"{name}: {paid.name} behind an API in {world}", *_lines(api_facts(plan, paid.rates))], []
    lines = [f"{name}: {params.policy.source} in {world}, on {plan.gpus} x {plan.hardware.name}"]
    if plan.gpus != started:
        lines.append(
            f"note: these parameters start {started} of {plan.gpus} ranks; set update.distributed (ranks x nodes)"
        )
    found = pilot_facts(pilot, plan.load.collected, question.wanted_share) if pilot else ()
    warnings = plan.warnings()
    return [*lines, *_lines(facts(plan)), *_lines(found), *([] if warnings else [_fits(plan)])], warnings


def _fits(plan: Plan) -> str:
    device = "" if plan.gpus == 1 else " per device"
    needed = plan.needed_bytes / GB
    return f"fits: {f'{needed:.1f}' if needed >= 0.1 else 'under 0.1'} of {plan.hardware.memory / GB:.0f} GB{device}"


def default_hardware(params: Params) -> str:
    """Return the key in HARDWARE to plan for where the command line names none."""
    device = params.policy.device.partition(":")[0]
    on_cpu = device == "cpu" or (device == "auto" and params.policy.dtype == "float32")
    return "cpu" if on_cpu else "h100"


def _lines(titled: Iterable[tuple[str, str]]) -> Iterator[str]:
    for title, text in titled:
        first, *others = fitted([f"  {title or '|':22}{text}"], hanging=22)  # `|` keeps an empty title's columns
        yield from (first if title else first.replace("|", " ", 1), *others)


def api_facts(plan: Plan, rates: Rates) -> Iterator[tuple[str, str]]:
    """Yield the plan of a model that is scored behind an API."""
    from tasks.core.capacity.api_cost import api_cost

    found, load = api_cost(plan.load, rates), plan.load
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
