"""The plan of a study: methods, training seeds, and what they have in common. Pure, except that it reads YAML."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator

from flows.params_file import WrongSetting, assigned
from flows.profile_stack import stacked
from tasks.core.config.broken_rules import broken_rules
from tasks.core.config.params import ParamsError, read_yaml
from tasks.core.config.section import Section
from tasks.core.records.comparison import NO_FINE_TUNING

STUDIES = Path(__file__).parent / "studies"


class Method(Section):
    """One row of the table: profiles on top of the study's base, and knobs on top of those."""

    profiles: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """As `--set` of `loopline configure`: "update.epochs=1"."""
    trained: bool = True
    """False: its row is about the base policy, and nothing need be trained."""
    seeds: int | None = Field(None, ge=1)
    """Only so many of the study's seeds, its first ones; None: all."""


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")]
"""Part of the name of a DVC experiment, which is a git ref, and of a folder."""


class StudyPlan(Section):
    """A study. In YAML a method may also be a profile's name alone: `grpo: grpo`, or nothing: `loop:`."""

    name: Name
    base: tuple[str, ...] = ("default",)
    """Profiles under all methods."""
    settings: tuple[str, ...] = ()
    """Knobs of all methods, below their own."""
    methods: dict[Name, Method] = Field(min_length=1)
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    against: str
    """The method that the others are compared with, or "nft" for the base policy; the first if none is named."""
    confidence: float = Field(0.95, gt=0, lt=1)
    orderings: tuple[tuple[str, ...], ...] = ()
    """Claims to test: methods from the best one down, each next to the following; "nft" is the base policy."""

    @model_validator(mode="before")
    @classmethod
    def _is_against_the_first(cls, content: Any) -> Any:
        methods = content.get("methods") if isinstance(content, dict) else None
        return {"against": next(iter(methods)), **content} if isinstance(methods, dict) and methods else content

    @field_validator("methods", mode="before")
    @classmethod
    def _methods_may_be_profiles(cls, methods: Any) -> Any:
        if not isinstance(methods, dict):
            return methods
        return {name: _method(content) for name, content in methods.items()}

    @model_validator(mode="after")
    def _is_consistent(self) -> "StudyPlan":
        known = {*self.methods, NO_FINE_TUNING}
        if self.against not in known:
            raise ValueError(f"against: {self.against} is none of the methods {', '.join(self.methods)}")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: one is named twice")
        for ordering in self.orderings:
            if len(ordering) < 2 or len(set(ordering)) < len(ordering) or not known.issuperset(ordering):
                raise ValueError(f"orderings: {list(ordering)}: expected two or more of {', '.join(sorted(known))}")
        return self


@dataclass(frozen=True)
class RunPlan:
    """One method with one seed."""

    method: str
    seed: int
    experiment: str
    """Its name for DVC, MLflow and its folder; no other run of any study has it."""
    params: dict[str, Any]
    """Values of params.yaml that differ from the defaults."""
    command: str
    """The command that writes that params.yaml."""


def read_plan(place: str) -> dict[str, Any]:
    """Return the content of a study: a path, or the name of one in flows/comparison/studies. Raises ParamsError."""
    path = Path(place) if place.endswith((".yaml", ".yml")) else STUDIES / f"{place}.yaml"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in STUDIES.glob("*.yaml")))
        raise WrongSetting(f"{path}: no such study; those with a name are: {known}")
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ParamsError(f"{path}: expected a mapping, found {type(content).__name__}")
    return {"name": path.stem, **content}


def checked(content: dict[str, Any], place: str = "study") -> StudyPlan:
    """Return the study of this content, `place` in messages. Raises ParamsError with a line per broken rule."""
    try:
        return StudyPlan.model_validate(content)
    except ValidationError as error:
        raise ParamsError("\n".join(f"{place}: {rule}" for rule in broken_rules(error, "(top level)"))) from None


def chosen(content: dict[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """Return a valid study with these of its methods alone; claims lose the others. Raises ParamsError."""
    absent = [name for name in methods if name not in content["methods"]]
    if absent:
        raise WrongSetting(f"--methods: {', '.join(absent)}: not in the study {content['name']}")
    claims = [[name for name in claim if name in (*methods, NO_FINE_TUNING)] for claim in content["orderings"]]
    found = {**content, "methods": {name: content["methods"][name] for name in methods}}
    if content["against"] not in (*methods, NO_FINE_TUNING):
        del found["against"]
    return {**found, "orderings": [claim for claim in claims if len(claim) > 1]}


def with_controls(content: dict[str, Any]) -> dict[str, Any]:
    """Return a valid study with what a gain must beat, and the claims that its first method does.

    Imitation alone; imitation of the successes among the flawed demonstrations; supervised training on solutions of all
    training tasks with at least as many optimizer steps as LOOP; training on the policy's own successes (EI, RFT);
    random rewards. Raises UnknownProfile or ParamsError.
    """
    tasks, untrained = f"collection.tasks_per_iteration={_MANY_TASKS}", {"trained": False}
    controls: dict[str, Any] = {
        "imitation": {"settings": ["policy.source=recipe:imitation", "iterations=0"], **untrained},
        "imitation_of_successes": {"settings": ["policy.source=recipe:successes", "iterations=0"], **untrained},
        "sft_gt": {"profiles": ["sft_gt"], "settings": [tasks, "update.epochs=2"]},
        "ei": {"profiles": ["ei"]},
        "rft": {"profiles": ["rft"], "settings": [tasks]},
        "random_rewards": {"profiles": ["random_rewards"]},
    }
    if stacked(content["base"]).get("policy", {}).get("warm_start"):
        del controls["imitation_of_successes"]
        flawed = [f"policy.warm_start.imperfect_{name}=0" for name in ("demonstrations", "steps")]
        controls["imitation"]["settings"][:1] = flawed
    first = next(iter(content["methods"]))
    claims = [[first, name] for name in controls if name != first]
    return {**content, "methods": controls | content["methods"], "orderings": [*content["orderings"], *claims]}


_MANY_TASKS = 72
"""As many as pocketworld trains on; in a world of fewer, some twice."""


def runs(plan: StudyPlan) -> Iterator[RunPlan]:
    """Yield every method with the first seed, then with the next: a table early, which improves with time.

    Raises UnknownProfile or ParamsError.
    """
    for place, seed in enumerate(plan.seeds):
        for name, method in plan.methods.items():
            if method.seeds is not None and place >= method.seeds:
                continue
            profiles = [*plan.base, *method.profiles]
            experiment = f"{plan.name}-{name}-s{seed}"
            settings = [*plan.settings, *method.settings, f"seed={seed}", f"lineage.experiment={plan.name}"]
            content = assigned(stacked(profiles), settings)
            knobs = "".join(f" --set {shlex.quote(setting)}" for setting in settings)
            yield RunPlan(name, seed, experiment, content, f"loopline configure {' '.join(profiles)}{knobs}")


def _method(content: Any) -> Any:
    if content is None:
        return {}
    return {"profiles": [content]} if isinstance(content, str) else content
