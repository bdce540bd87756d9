"""Write dvc.yaml's comments on which knobs each stage reads, from the stages' input classes.

    python docs/hooks/stage_knobs.py        (writes dvc.yaml anew)

A section stands for all of its knobs. Under the default: of a world and an engine, those that params.yaml names.
"""

import re
from collections.abc import Iterator, Set
from pathlib import Path
from textwrap import wrap

from flows.dag.stages import STAGES, Stage
from flows.params_file import params_of
from tasks.core.config.params import Params

DVC_YAML = Path(__file__).resolve().parents[2] / "dvc.yaml"
_WIDTH = 120
_FIRST, _NEXT = "    # knobs: ", "    #   "


def with_comments(text: str) -> str:
    """Return the text of dvc.yaml with a comment below the name of each stage, in place of the one that is there."""
    params = params_of("default")
    for stage in STAGES:
        place = rf"^(  {stage.name}:.*\n)(?:{_FIRST}.*\n(?:{_NEXT}.*\n)*)?"
        text, found = re.subn(place, lambda match, stage=stage: match[1] + comment(stage, params), text, flags=re.M)
        if found != 1:
            raise ValueError(f"dvc.yaml: {found} stages {stage.name}")
    return text


def comment(stage: Stage, params: Params) -> str:
    """Return the lines of one stage's comment."""
    every = params.knobs(unversioned=True).keys()
    known = frozenset(name for name in every if not name.startswith("dag."))
    read = ", ".join(short(known, known & stage.knobs(params).keys())) if stage.inputs else "all"
    lines = wrap(read, _WIDTH, initial_indent=_FIRST, subsequent_indent=_NEXT, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def short(known: Set[str], read: Set[str], section: str = "") -> Iterator[str]:
    """Yield the names of `read`, a section's in place of its knobs where all of them are read."""
    for name in dict.fromkeys(section + each.removeprefix(section).partition(".")[0] for each in sorted(known)):
        below = {each for each in known if each == name or each.startswith(f"{name}.")}
        if below <= read:
            yield name
        elif below & read:
            yield from short(below, read & below, f"{name}.")


if __name__ == "__main__":
    DVC_YAML.write_text(with_comments(DVC_YAML.read_text(encoding="utf-8")), encoding="utf-8")
