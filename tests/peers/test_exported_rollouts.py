"""Exported rollouts as TRL's own trainers take them (lane peers)."""

import json
import math
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tasks.core.exports.rollout_dataset import Conversations, RolloutSource, export_rollouts
from tasks.core.interpreters import INTERPRETERS, inherited_variables, python_executable
from tasks.core.records.schemas import ROLLOUTS
from tasks.core.records.tables import table_of
from tests.core.exports.test_rollout_dataset import ASKED, CHAT, row
from tests.peers.interpreter import HERE, PEERS, ROOT

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1500)]

MODEL = ROOT / "data" / "base_policies" / "pocket"


def test_trl_trains_on_the_folder_as_it_is(tmp_path: Path) -> None:
    rows = [row(f"t_{task}", number, 0.5 * number) for task in range(3) for number in range(2)]
    source = RolloutSource("i003", "train", table_of(rows, ROLLOUTS), "pocketworld", "a-model")
    export_rollouts(source, Conversations(CHAT), tmp_path / "out")
    found = answer(tmp_path)
    assert (found["rollouts"], found["pairs"]) == (6, 3)
    assert found["first"]["messages"] == [*ASKED, {"role": "assistant", "content": "Turn 0."}]
    assert found["first"]["token_ids"] == rows[0]["token_ids"]
    whole = CHAT.text_with_marks(rows[0]["token_ids"])
    shown = found["sft"]["text"].replace("Turn 1.", "Turn 0.")
    assert shown.startswith(whole), "the chat template makes of the messages what the policy saw and sampled"
    assert found["sft"]["loss"] > 0 and found["sft"]["moved"] > 0
    assert found["dpo"]["loss"] == pytest.approx(math.log(2), abs=1e-5), "both models are the same before a step"
    assert found["dpo"]["moved"] > 0


def answer(folder: Path) -> dict[str, Any]:
    """Return what the script says of the dataset `out` in `folder`."""
    arguments = [sysconfig.get_path("purelib"), folder / "out", MODEL, folder / "trl"]
    command = [python_executable(ROOT / INTERPRETERS, PEERS), HERE / "train_on_folder.py", *arguments]
    variables = inherited_variables() | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder / "cache")}
    done = subprocess.run(list(map(str, command)), env=variables, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
