"""The text of params.yaml: every knob with what it means, and the section `dag` as DVC needs it."""

from collections.abc import Iterator, Mapping

import yaml

from tasks.core.config.descriptions import knob_comments
from tasks.core.config.params import Params
from tasks.core.config.yaml_text import yaml_nodes, yaml_text

_COLUMN = 42
"""Column at which comments begin, if their values leave it free."""


def text_of(params: Params) -> str:
    """Return the whole of params.yaml."""
    content = params.model_dump(mode="json")
    dag = {"dag": content.pop("dag")}
    return _commented(yaml_text(content), knob_comments(params)) + yaml_text(dag, flat=True)


def _commented(text: str, comments: Mapping[str, str]) -> str:
    """Return the YAML `text` with the comments of its keys."""
    lines = text.splitlines()
    whole = yaml_nodes(text)
    for line, name in _keys(whole, ""):
        if comment := comments.get(name):
            lines[line] = f"{lines[line]:<{_COLUMN}}  # {comment}"
    return "\n".join(lines) + "\n"


def _keys(mapping: yaml.Node, prefix: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the dotted name of every key after whose line nothing of its value goes on, or all of it."""
    for key, value in mapping.value:
        line, name = key.start_mark.line, prefix + key.value
        block = isinstance(value, yaml.MappingNode) and not value.flow_style
        if block or value.end_mark.line == line:
            yield line, name
        if block:
            yield from _keys(value, f"{name}.")
