"""Additions to Hydra that compose params.yaml for `dvc exp run`: its place, and the maps that DVC cannot count out."""

from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, ListConfig, OmegaConf

from tasks.core.config.monitor import MonitorAction
from tasks.core.config.params import evaluated_keys, monitoring_maps, previous_map, sampling_maps
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.sources import sources_of
from tasks.core.config.world import WorldConfig

ROOT = Path(__file__).resolve().parents[3]


class ParamsInProjectRoot(SearchPathPlugin):
    """Lets flows/experiments/config.yaml name the params.yaml of the project; Hydra finds this class by its base."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the project's root."""
        search_path.append("loopline", f"file://{ROOT}")


def previous(iterations: int, staleness: int, every: int) -> DictConfig:
    """The map `previous` of params.yaml."""
    found = previous_map(iterations, staleness, every)
    content: dict[str, Any] = {key: before.model_dump() for key, before in found.items()}
    return OmegaConf.create(content)


def collected(iterations: int, staleness: int, every: int, tree: DictConfig | None) -> DictConfig:
    """The map `collected` of params.yaml."""
    return _sampling("collected", iterations, staleness, every, tree)


def searched(iterations: int, staleness: int, every: int, tree: DictConfig | None) -> DictConfig:
    """The map `searched` of params.yaml."""
    return _sampling("searched", iterations, staleness, every, tree)


def _sampling(name: str, iterations: int, staleness: int, every: int, tree: DictConfig | None) -> DictConfig:
    maps = sampling_maps(previous_map(iterations, staleness, every), searching=tree is not None)
    return OmegaConf.create(dict(maps[name]))


def monitored(iterations: int, action: MonitorAction) -> DictConfig:
    """The map `monitored` of params.yaml."""
    return OmegaConf.create(dict(monitoring_maps(previous_map(iterations), action)["monitored"]))


def neutral_courses(action: MonitorAction) -> str:
    """The path `neutral_courses` of params.yaml."""
    return str(monitoring_maps({}, action)["neutral_courses"])


def evaluated(iterations: int, every: int) -> ListConfig:
    """The list `evaluated` of params.yaml."""
    return OmegaConf.create(evaluated_keys(iterations, every))


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
