"""The conditions under which a policy was scored; scores under different conditions do not compare. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from pydantic import ValidationError

from tasks.core.config.collection import AgentLimits
from tasks.core.config.world import WorldSection

_EVERYWHERE = ("world.name", "world.seed", "world.code_blocks", "collection.judge_unfinished")


def scored_differently(runs: Mapping[str, Mapping[str, str]], splits: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return {knob: {run: value}} of the conditions on `splits` that differ between runs (or registered versions).

    `runs` holds each run's knobs by dotted name, as text. The numbers of scenarios and of rollouts (scores are paired
    by task), engine, device and number format are not conditions. A knob that one run lacks was unknown to its code and
    is ignored. A limit has the value that applied, wherever it was set.
    """
    sections = dict.fromkeys("evaluation" if split == "dev" else "scoring" for split in splits)
    conditions_by_run = {run: dict(_conditions(knobs, sections)) for run, knobs in runs.items()}
    common = set.intersection(*(set(conditions) for conditions in conditions_by_run.values()))
    values = {name: {run: conditions[name] for run, conditions in conditions_by_run.items()} for name in sorted(common)}
    return {name: held for name, held in values.items() if len(set(held.values())) > 1}


def _conditions(knobs: Mapping[str, str], sections: Iterable[str]) -> Iterator[tuple[str, str]]:
    own = _own_conditions(knobs.get("world.name"))
    sampling = {f"{section}.{name}" for section in sections for name in ("temperature", "top_k", "top_p")}
    for name, value in knobs.items():
        if name in _EVERYWHERE or name in sampling or name in own:
            yield name, value
    for section in sections:
        for limit in AgentLimits.model_fields:
            # Precedence as in `plan_dev` and `plan_test`: null means the value of the section before.
            names = (f"{source}.limits.{limit}" for source in (section, "evaluation", "collection"))
            set_here = (knobs[name] for name in names if knobs.get(name, "null") != "null")
            yield from ((f"{section}.limits.{limit}", value) for value in list(set_here)[:1])


def _own_conditions(world: str | None) -> set[str]:
    """Return the knobs of this world, except those that say where a server or data is, not what."""
    try:
        section = WorldSection.of(world)
    except ValidationError:
        return set()  # a version that another system registered
    return {name for name in section.knobs("world.") if not name.endswith(".root")}
