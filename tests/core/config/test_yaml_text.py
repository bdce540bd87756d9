"""One reading of YAML: this reader's, DVC's own, and PyYAML's of what this writer wrote."""

from typing import Any

import pytest
import yaml
from dvc.utils.serialize import YAMLFileCorruptedError
from dvc.utils.serialize import parse_yaml as dvcs_reading
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.core.config.yaml_text import YamlFault, parse_yaml, yaml_text

SCALARS = st.text("0123456789+-._:exobEaftrunyslTN~", max_size=8)


@given(SCALARS)
@example("010")
@example("1e-3")
@example("yes")
@example("1:30")
@example("0o17")
@example("1_000")
@example("-_")
@example("._")
def test_a_plain_value_is_read_as_dvc_reads_it(text: str) -> None:
    assert reading(parse_yaml, text) == reading(lambda whole: dvcs_reading(whole, "params.yaml"), text)


def reading(read: Any, text: str) -> str:
    try:
        return repr(read(f"knob: {text}\n"))
    except (YAMLFileCorruptedError, ValueError, IndexError):  # the last: DVC's library, at a number without a digit
        return "refused"


@given(SCALARS)
@example("08")
@example("1e3")
@example("on")
@example("-_")
def test_a_text_that_is_written_is_a_text_for_every_reader(text: str) -> None:
    written = yaml_text({"knob": text})
    assert parse_yaml(written) == dvcs_reading(written, "") == yaml.safe_load(written) == {"knob": text}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: 1\nb: {c: 1, c: 2}\n", "line 2: duplicate key 'c', first on line 2"),
        ("a: 1\n<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> theirs\n", "line 2: a git conflict marker"),
        ("a: [1\n", "line 2: "),
        ("a: \x01", "control characters"),
    ],
)
def test_a_fault_is_one_line_with_its_place(text: str, fault: str) -> None:
    with pytest.raises(YamlFault) as found:
        parse_yaml(text)
    assert fault in str(found.value) and len(str(found.value).splitlines()) == 1


def test_a_merged_mapping_may_be_overridden() -> None:
    assert parse_yaml("x: &x {a: 1}\ny:\n  <<: *x\n  a: 2\n") == {"x": {"a": 1}, "y": {"a": 2}}
