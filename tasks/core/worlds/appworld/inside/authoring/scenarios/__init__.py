"""The scenario templates of an authored root, one module per app."""

import inspect

from ..template import Scenario, Template, read_template
from . import (
    amazon,
    files,
    gmail,
    music_changes,
    music_playlists,
    music_questions,
    notes,
    phone,
    several_apps,
    splitwise,
    todos,
    venmo,
)

_MODULES = (
    amazon,
    files,
    gmail,
    music_changes,
    music_playlists,
    music_questions,
    notes,
    phone,
    several_apps,
    splitwise,
    todos,
    venmo,
)


def _templates() -> list[Template]:
    scenarios = [
        member
        for module in _MODULES
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, Scenario) and member.__module__ == module.__name__
    ]
    return [read_template(scenario) for scenario in scenarios]


TEMPLATES = _templates()
