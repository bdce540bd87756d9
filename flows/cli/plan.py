"""`loopline plan`: estimate what a profile needs before money is spent on it (tasks/core/capacity/plan.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.cli.command import Settings, command, fitted, profiles, refusing
from tasks.core.capacity.hardware import GB, HARDWARE

if TYPE_CHECKING:
    from tasks.core.capacity.plan import Plan
    from tasks.core.config.engine import Rates
    from tasks.core.config.params import Params

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
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON: bytes, seconds, FLOPs.")] = False,
) -> int:
    """Estimate the memory, time and disk that a profile needs.

    Memory by the tensors that learner and engine keep; time by FLOPs and bytes over a card's rates, of rollouts a lower
    bound, of an update as if no rollout were filtered. Exit code 1: it does not fit; 2: it cannot be planned.

    \b
    loopline plan paper rloo --hardware h100 --gpus 16
    loopline plan gpu_small --hardware rtx4090 --json
    """
    from flows.params_file import params_in, params_of

    name = " ".join(names or ["params.yaml"])
    with refusing(ValueError):
        params = params_of(name, settings) if names else params_in(Path.cwd() / name, settings)
        planned = _planned(params, HARDWARE[hardware or default_hardware(params)], gpus)
    paid = params.engine.kind.price(params.engine.own)
    figures = _api_figures(planned, paid.rates) if paid else _figures(planned)
    warnings = [] if paid else planned.warnings()
    if as_json:
        print(json.dumps({"profile": name, **figures, "does_not_fit": warnings}, indent=2))
        return 1 if warnings else 0
    model = f"{paid.name} behind an API" if paid else params.policy.source
    where = "" if paid else f", on {planned.gpus} x {planned.hardware.name}"
    print(f"{name}: {model} in {params.world.name}{where}")
    started = params.update.distributed.size
    if not paid and planned.gpus != started:
        print(f"note: these parameters start {started} of {planned.gpus} ranks; set update.distributed")
    for title, value in figures.items():
        print("\n".join(fitted([f"  {title.replace('_', ' '):26}{_text(title, value)}"], hanging=26)))
    if not paid:
        print("\n".join(fitted(f"does not fit: {warning}" for warning in warnings)) or _fits(planned))
    return 1 if warnings else 0


def _planned(params: Params, hardware: Any, gpus: int | None) -> Plan:
    from tasks.core.capacity.known_models import model_config
    from tasks.core.capacity.plan import make_plan
    from tasks.core.policies.positions import limited_context

    config = model_config(params.policy.source, Path.cwd())
    if params.policy.context_length is not None:
        config = limited_context(config, params.policy.context_length)
    return make_plan(params, config, hardware, gpus or params.update.distributed.size)


def default_hardware(params: Params) -> str:
    """Return the key in HARDWARE to plan for where the command line names none."""
    device = params.policy.device.partition(":")[0]
    on_cpu = device == "cpu" or (device == "auto" and params.policy.dtype == "float32")
    return "cpu" if on_cpu else "h100"


def _figures(plan: Plan) -> dict[str, Any]:
    """Return the plan's figures; the unit of a value that is no count is its title's last word."""
    load, engines, trains = plan.load, plan.engines, plan.load.iterations > 0
    rollouts = {"collected": load.collected, "on_dev": load.evaluated, "to_score": load.scored}
    updates = {"update": plan.update_s} if trains else {}
    return {
        "parameters": plan.parameters,
        "longest_tokens": {"rollout": plan.longest_rollout, "pass_of_the_learner": plan.longest_pack},
        "mean_episode_tokens": {"all": round(load.episodes.tokens), "sampled": round(load.episodes.sampled)},
        "mean_episode_source": load.episodes.source,
        "rollouts": {**rollouts, "collections": load.collections, "evaluations": load.evaluations},
        "run_tokens": round(load.tokens),
        "FLOPs": {"run": plan.flops, **({"update": plan.update_flops} if trains else {})},
        **({"learner_device_bytes": {**vars(plan.learner), "total": plan.learner.total}} if trains else {}),
        "engine_device_bytes": {"weights": engines.memory.loaded, "with_caches": plan.engine_bytes},
        "engines": {"replicas": engines.replicas, "devices_each": engines.tensor_parallel},
        "episodes": {"at_once": plan.live, "room": engines.room},
        "learner_and_engine": "take turns" if plan.releases_device else "stay loaded side by side",
        "seconds": {**plan.rollouts_s, **updates, "run": plan.seconds},
        "device_hours": round(plan.seconds / 3600 * plan.gpus, 2),
        "disk_bytes": {**plan.disk, "total": sum(plan.disk.values())},
    }


def _api_figures(plan: Plan, rates: Rates) -> dict[str, Any]:
    """Return the figures of a model that is scored behind an API, by our tokenizer and without a cache."""
    from tasks.core.capacity.workload import api_cost

    found, load = api_cost(plan.load, rates), plan.load
    return {
        "rollouts": {"on_dev": load.evaluated, "evaluations": load.evaluations, "to_score": load.scored},
        "requests": found.requests,
        "seconds": {"by_the_rate_limits": 60 * found.minutes},
        "tokens": {"prompts": round(found.prompt_tokens), "sampled": round(found.answer_tokens)},
        "cost_USD": round(found.usd, 2),
    }


def _text(title: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_text(title, one)}" for name, one in value.items() if one)
    if title.endswith("bytes"):
        return _size(value)
    if title.endswith("seconds"):
        return _time(value)
    return f"{value:.2e}" if title == "FLOPs" else f"{value:,}" if isinstance(value, int | float) else str(value)


def _fits(plan: Plan) -> str:
    needed, device = plan.needed_bytes / GB, "" if plan.gpus == 1 else " per device"
    return f"fits: {f'{needed:.1f}' if needed >= 0.1 else 'under 0.1'} of {plan.hardware.memory / GB:.0f} GB{device}"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _size(count: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count / 1e3:,.1f} KB"
