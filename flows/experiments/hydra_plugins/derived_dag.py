"""Additions to Hydra that compose params.yaml for `dvc exp run`: its place, and its section `dag`."""

from pathlib import Path
from typing import Annotated, Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from tasks.core.config.broken_rules import broken_rules
from tasks.core.config.collection import CollectionConfig
from tasks.core.config.dag import dag_of
from tasks.core.config.evaluation import EvaluationConfig
from tasks.core.config.params import Params, ParamsError, read_yaml
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.section import Section
from tasks.core.config.world import WorldConfig
from tasks.core.records.documents import dotted

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


class _Counted(Section):
    """The sections from which `dag` follows."""

    iterations: Annotated[int, Params.model_fields["iterations"]]
    collection: CollectionConfig
    evaluation: EvaluationConfig
    policy: PolicyConfig
    world: WorldConfig


def dag(*values: Any) -> DictConfig:
    """Return the section `dag` of params.yaml. Raises ParamsError that names a knob and the rule that it breaks."""
    plain = (OmegaConf.to_container(value) if isinstance(value, DictConfig) else value for value in values)
    try:
        counted = _Counted.model_validate(dict(zip(_Counted.model_fields, plain, strict=True)))
    except ValidationError as error:
        raise ParamsError(f"{broken_rules(error, '')[0]}, not {error.errors()[0]['input']!r}") from None
    derived: DictConfig = OmegaConf.create(
        dag_of(*(getattr(counted, name) for name in _Counted.model_fields)).model_dump()
    )
    return derived


OmegaConf.register_new_resolver("loopline.dag", dag, replace=True)
