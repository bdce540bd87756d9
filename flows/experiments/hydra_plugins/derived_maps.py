"""Additions to Hydra that compose params.yaml for `dvc exp run`: its place, and the maps that DVC cannot count out."""

from pathlib import Path
from typing import Annotated, Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, ListConfig, OmegaConf
from pydantic import TypeAdapter, ValidationError

from tasks.core.config.broken_rules import broken_rules
from tasks.core.config.collection import CollectionConfig
from tasks.core.config.evaluation import EvaluationConfig
from tasks.core.config.monitor import MonitorConfig
from tasks.core.config.params import (
    Params,
    ParamsError,
    Predecessors,
    evaluated_keys,
    monitoring_maps,
    previous_map,
    read_yaml,
    sampling_maps,
)
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.section import Section
from tasks.core.config.sources import sources_of
from tasks.core.config.world import WorldConfig
from tasks.core.records.dotted import dotted

ROOT = Path(__file__).resolve().parents[3]


class ParamsInProjectRoot(SearchPathPlugin):
    """Lets flows/experiments/config.yaml name the params.yaml of the project; Hydra finds this class by its base."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the project's root. Raises ParamsError where Hydra would read params.yaml otherwise than DVC."""
        _require_one_reading(ROOT / "params.yaml")
        search_path.append("loopline", f"file://{ROOT}")


def _require_one_reading(path: Path) -> None:
    """Raise ParamsError for a value that Hydra reads otherwise: it takes 010 for eight, and writes that down."""
    composed: Any = OmegaConf.to_container(OmegaConf.load(path))
    ours, hydras = dotted(read_yaml(path)), dotted(composed)
    for knob, value in ours.items():
        if knob not in hydras or repr(hydras[knob]) != repr(value):
            raise ParamsError(f"{path}: {knob}: DVC reads {value!r}, Hydra {hydras.get(knob)!r}; write what both read")


def previous(iterations: Any, staleness: Any, every: Any) -> DictConfig:
    """Return the map `previous` of params.yaml."""
    content: dict[str, Any] = {key: before.model_dump() for key, before in _found(iterations, staleness, every).items()}
    return OmegaConf.create(content)


def collected(iterations: Any, staleness: Any, every: Any, tree: DictConfig | None) -> DictConfig:
    """Return the map `collected` of params.yaml."""
    return _sampling("collected", _found(iterations, staleness, every), tree)


def searched(iterations: Any, staleness: Any, every: Any, tree: DictConfig | None) -> DictConfig:
    """Return the map `searched` of params.yaml."""
    return _sampling("searched", _found(iterations, staleness, every), tree)


def monitored(iterations: Any, action: Any) -> DictConfig:
    """Return the map `monitored` of params.yaml."""
    return OmegaConf.create(dict(monitoring_maps(_found(iterations, 0, 1), _action(action))["monitored"]))


def neutral_courses(action: Any) -> str:
    """Return the path `neutral_courses` of params.yaml."""
    return str(monitoring_maps({}, _action(action))["neutral_courses"])


def evaluated(iterations: Any, every: Any) -> ListConfig:
    """Return the list `evaluated` of params.yaml."""
    number = _knob(Params, "iterations", iterations)
    return OmegaConf.create(evaluated_keys(number, _knob(EvaluationConfig, "every", every, "evaluation.")))


def _sampling(name: str, found: dict[str, Predecessors], tree: DictConfig | None) -> DictConfig:
    return OmegaConf.create(dict(sampling_maps(found, searching=tree is not None)[name]))


def _found(iterations: Any, staleness: Any, every: Any) -> dict[str, Predecessors]:
    return previous_map(
        _knob(Params, "iterations", iterations),
        _knob(CollectionConfig, "staleness", staleness, "collection."),
        _knob(CollectionConfig, "every", every, "collection."),
    )


def _action(value: Any) -> Any:
    return _knob(MonitorConfig, "action", value, "monitor.")


def _knob(section: type[Section], name: str, value: Any, prefix: str = "") -> Any:
    """Return the value of a knob. Raises ParamsError with its name and the rule that it breaks."""
    field = section.model_fields[name]
    kind: Any = Annotated[field.annotation, field]
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise ParamsError(f"{prefix}{name}: {broken_rules(error, '')[0]}, not {value!r}") from None


def sources(policy: DictConfig, world: DictConfig) -> DictConfig:
    """Return the map `sources` of params.yaml."""
    policy_config = PolicyConfig.model_validate(OmegaConf.to_container(policy))
    world_config = WorldConfig.model_validate(OmegaConf.to_container(world))
    return OmegaConf.create(sources_of(policy_config, world_config).model_dump())


OmegaConf.register_new_resolver("loopline.previous", previous, replace=True)
OmegaConf.register_new_resolver("loopline.collected", collected, replace=True)
OmegaConf.register_new_resolver("loopline.searched", searched, replace=True)
OmegaConf.register_new_resolver("loopline.monitored", monitored, replace=True)
OmegaConf.register_new_resolver("loopline.neutral_courses", neutral_courses, replace=True)
OmegaConf.register_new_resolver("loopline.evaluated", evaluated, replace=True)
OmegaConf.register_new_resolver("loopline.sources", sources, replace=True)
