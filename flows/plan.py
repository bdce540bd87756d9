"""Print what a profile needs before money is spent on it.

    python -m flows.plan --profile paper [rloo ...] [--hardware h100|h200|a100|cpu] [--gpus N] [--set a.b=c ...]

    python -m flows.plan --pilot data/iterations/i001/rollouts.parquet [--wanted-share 0.8]

Without --profile: params.yaml as it is. --pilot adds, from the success rates of rollouts that were played, how many
rollouts per task carry a signal. Figures come from tasks/core/capacity, a model of formulas and stated assumptions that
was checked on a CPU, and on a GPU for the learner alone. Exit code 1: what was asked for does not fit; 2: it cannot be
planned.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from flows.arguments import share, whole_number
from flows.configure import params_in, params_of
from flows.profile_stack import profile_names
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
_DEVICES = "default: cpu or h100, by policy.device; where that is auto, cpu for a policy.dtype of float32"


def main(arguments: list[str] | None = None) -> int:
    """Parse, plan, print."""
    parser = argparse.ArgumentParser(prog="python -m flows.plan", description="What a profile needs on given hardware.")
    parser.add_argument(
        "--profile", nargs="+", help=f"the later on top: {', '.join(profile_names())}; default: params.yaml"
    )
    parser.add_argument("--hardware", choices=sorted(HARDWARE), help=_DEVICES)
    parser.add_argument("--gpus", type=whole_number(1), help="devices; default: update.distributed.ranks x nodes")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=VALUE", help="change one knob")
    parser.add_argument("--pilot", type=Path, help="a rollouts table: propose the number of rollouts per task")
    parser.add_argument("--wanted-share", type=share, default=0.8, help="of groups with a signal (default 0.8)")
    parsed = parser.parse_args(arguments)
    root = Path.cwd()
    try:
        name = " ".join(parsed.profile or ["params.yaml"])
        params = params_of(name, parsed.set) if parsed.profile else params_in(root / name, parsed.set)
        config = model_config(params.policy.source, root)
        if params.policy.context_length is not None:
            config = limited_context(config, params.policy.context_length)
        kind = parsed.hardware or default_hardware(params)
        pilot = pilot_coverage(parsed.pilot) if parsed.pilot else None
        plan = make_plan(params, config, HARDWARE[kind], parsed.gpus or params.update.distributed.size)
    except ValueError as error:
        print(f"flows.plan: {error}", file=sys.stderr)
        return 2
    world = params.world.name
    if isinstance(params.engine, ChatApiSection):
        print(f"{name}: {params.engine.chat_api.request.model} behind an API in {world}")
        _print(api_facts(plan, params.engine.chat_api.traffic))
        return 0
    print(f"{name}: {params.policy.source} in {world}, on {plan.gpus} x {plan.hardware.name}")
    if plan.gpus != (ranks := params.update.distributed.size):
        print(f"note: these parameters start {ranks} of {plan.gpus} ranks; set update.distributed (ranks x nodes)")
    _print(facts(plan))
    if pilot:
        _print(pilot_facts(pilot, plan.load.collected, parsed.wanted_share))
    warnings = plan.warnings()
    for warning in warnings:
        print(f"does not fit: {warning}")
    return 1 if warnings else 0


def default_hardware(params: Params) -> str:
    """The key in HARDWARE of what is planned for where the command line names nothing."""
    device = params.policy.device.partition(":")[0]
    on_cpu = device == "cpu" or (device == "auto" and params.policy.dtype == "float32")
    return "cpu" if on_cpu else "h100"


def _print(titled: Iterable[tuple[str, str]]) -> None:
    for title, text in titled:
        print(f"  {title:22}{text}")


def api_facts(plan: Plan, traffic: Traffic) -> Iterator[tuple[str, str]]:
    """The plan of a model that is scored behind an API."""
    found, load = api_cost(plan.load, traffic), plan.load
    yield "rollouts", f"{load.evaluated:,} x {load.evaluations} on dev, {load.scored:,} to score"
    yield "requests", f"{found.requests:,}; at least {found.minutes:,.0f} min by the rate limits of the params"
    tokens = f"{found.prompt_tokens / 1e6:,.2f} million of prompts, {found.answer_tokens / 1e6:,.2f} million sampled"
    yield "tokens", f"{tokens} (by our tokenizer, for episodes as long as the trained policy's)"
    yield "cost", f"{found.usd:,.2f} USD at the prices of the params, nothing cached"


def facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """The plan as (title, text)."""
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
    sys.exit(main())
