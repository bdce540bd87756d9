"""Files that knobs name are sources, which DVC watches: a changed one must not stay unseen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from flows.params_file import params_of
from tasks.core.config.dag import NO_POLICY_FILES, NO_WORLD_FILES
from tasks.core.config.params import Params, ParamsError, params_of_knobs, parse_params
from tasks.core.config.world import WORLDS
from tasks.core.interfaces.world_kind import find_world

COMMIT = "a" * 40


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ([], "data/base_policies/pocket_narrow"),
        (["policy.source=bases/x"], "bases/x"),
        (["policy.source=./bases/x/"], "bases/x"),
        (["policy.source=/models/x", f"policy.revision={COMMIT}"], "/models/x"),
        (["policy.source=../x", f"policy.revision={COMMIT}"], "../x"),
        (["policy.source=Qwen/Qwen2.5-32B", f"policy.revision={COMMIT}"], NO_POLICY_FILES),
        (["policy.source=recipe"], NO_POLICY_FILES),
        (["policy.source=pip:packaged==1.0"], NO_POLICY_FILES),
    ],
)
def test_a_folder_is_a_source_and_what_its_name_pins_is_none(settings: list[str], policy: str) -> None:
    assert params_of("default", settings).dag.sources.policy == policy


@pytest.mark.parametrize(
    ("settings", "world"),
    [
        ([], NO_WORLD_FILES),
        (["world.name=webshop"], NO_WORLD_FILES),
        (["world.name=webshop", "world.webshop.source=original", "world.webshop.root=/shop"], "/shop"),
        (["world.name=appworld", "world.appworld.source=official", "world.appworld.root=aw"], "aw/data"),
    ],
)
def test_the_data_of_the_world_in_use_is_a_source(settings: list[str], world: str) -> None:
    longest = "collection.limits.max_turns=40"
    assert params_of("default", [*settings, longest]).dag.sources.world == world


def test_each_knob_that_is_a_path_is_watched() -> None:
    """A new one must come into `source_files` of its world, or into the stage's artifact, and then into this list."""
    assert not list(_paths(Params))
    worlds = {name: find_world(name).settings for name in WORLDS.names()}
    found = {path for name, settings in worlds.items() for path in _paths(settings, f"world.{name}.")}
    assert found == {"world.appworld.root", "world.webshop.root"}


def _paths(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        kinds = set(_classes(field.annotation))
        if any(issubclass(kind, Path) for kind in kinds):
            yield f"{prefix}{name}"
        for kind in kinds:
            if issubclass(kind, BaseModel):
                yield from _paths(kind, f"{prefix}{name}.")


def _classes(annotation: Any) -> Iterator[type]:
    """The classes of a type, however deep they lie in it."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _classes(part)


def test_sources_that_are_not_in_step_are_refused() -> None:
    content = params_of("default").model_dump(mode="json")
    content["policy"]["source"] = "bases/x"
    with pytest.raises(ParamsError, match=r"dag\.sources does not match .*; run `loopline configure --refresh`"):
        parse_params(content, "params.yaml")


def test_a_section_that_nobody_writes_is_one_line_and_derived_anew_in_what_a_run_recorded() -> None:
    older = {**Params().model_dump(mode="json"), "dag": {"previous": {}, "once": 1}}
    with pytest.raises(ParamsError, match=r"^params\.yaml: dag: of another version.*configure --refresh`$"):
        parse_params(older, "params.yaml")
    assert params_of_knobs(older, "data/manifest.json") == Params()
