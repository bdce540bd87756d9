"""The table of docs/paper.md compared with the profiles, which keeps it current, and the paper's required values."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from flows.params_file import params_of
from flows.profile_stack import PROFILES, read_mapping
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.records.documents import dotted
from tasks.core.worlds.appworld.kind import APPWORLD

TABLE = Path(__file__).parents[2] / "docs" / "paper.md"
WITHOUT_EFFECT = {
    "world.name",
    "policy.revision",
    "engine.name",
    "engine.vllm.servers",
    "engine.vllm.gpus_per_server",
    "engine.vllm.sequences",
    "machines.ray.address",
    "machines.ray.cpus_per_worker",
    "machines.ray.gpus_per_worker",
    "update.tokens_per_pack",
    "update.activation_checkpointing",
    "update.fold_adapter",
    "lineage.experiment",
}
"""Knobs that the profile sets besides the method: names, and settings of where and how fast work is done."""


def rows() -> dict[str, list[str]]:
    """Return {knob: the other cells} of the table."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert max(Counter(first for first, *_ in cells).values()) == 1
    return {first.strip("`"): rest for first, *rest in cells}


@pytest.mark.parametrize(("column", "profile"), [(2, "default"), (3, "paper")])
def test_the_table_says_what_the_profiles_hold(column: int, profile: str) -> None:
    values = dotted(params_of(profile).model_dump(mode="json"))
    assert {knob: cells[column] for knob, cells in rows().items()} == {
        knob: json.dumps(values[knob]) if knob in values else "\u2013" for knob in rows()
    }


def test_the_table_has_every_setting_of_the_profile() -> None:
    assert set(dotted(read_mapping(PROFILES / "paper.yaml"))) == set(rows()) | WITHOUT_EFFECT


def test_the_paper_is_two_nodes_and_its_dev_rollouts_are_greedy() -> None:
    params = params_of("paper")
    assert params.update.distributed.size == 16
    assert (params.evaluation.rollouts_per_task, params.evaluation.temperature) == (2, 0.0)
    assert params.dag.evaluated[:3] == ["i000", "i005", "i010"]
    official = params_of("paper_official")
    assert official.world.appworld.denylist == ("3ab5b8b_3", "37a8675_1")
    assert official.update == params.update and official.collection == params.collection


COUNT = """
import sys; sys.path.insert(0, "tasks/core/worlds/appworld")
from inside.authoring.plan import _mixed, Random
from inside.authoring.scenarios import TEMPLATES
usable = [template for template in TEMPLATES if template.showing == "shared"]
order = _mixed(usable, Random(f"order:{sys.argv[1]}:train"))
print(3 * sum(order[place % len(order)].difficulty <= 2 for place in range(int(sys.argv[2]) // 3)))
"""


@pytest.mark.appworld
@pytest.mark.parametrize("profile", ["paper", "gpu_80gb", "gpu_small"])
def test_72_authored_tasks_are_left_for_training(profile: str) -> None:
    """Count in AppWorld's interpreter as the generator would plan them; writing the databases takes minutes."""
    world = params_of(profile).world
    arguments = [
        str(python_executable(INTERPRETERS, APPWORLD)),
        "-c",
        COUNT,
        str(world.seed),
        str(world.appworld.counts.train),
    ]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=PROFILES.parents[1])
    assert re.findall(r"\d+", done.stdout) == ["72"]
