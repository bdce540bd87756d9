"""Recorded rollouts as messages and as a data set that `datasets` reads."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from huggingface_hub import metadata_load

from tasks.core.exports.rollout_dataset import Conversations, RolloutSource, export_rollouts
from tasks.core.interfaces.world import Message, Observation
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_tokenizer
from tasks.core.records.files import ArtifactError
from tasks.core.records.schemas import ROLLOUTS
from tasks.core.records.tables import table_of
from tasks.core.rollouts.transcript import Transcript
from tests.core.policies.test_chat_templates import DROPPING, FAMILIES, tokenizer_of
from tests.finished_run import played_row

SHIPPED = Path(__file__).parents[3] / "data" / "base_policies" / "pocket"
OPENINGS: list[list[Message]] = [
    [{"role": "system", "content": "Act.\n\nWell."}, {"role": "user", "content": "Pay.\n\nNow."}],
    [
        {"role": "system", "content": "Act."},
        {"role": "user", "content": "Greet."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Pay."},
    ],
]


def played(chat: ChatFormat, opening: list[Message], *, closed: bool) -> dict[str, Any]:
    """Return the columns of two turns, `Look.` and `Done.`, with an observation between them."""
    transcript, prompt = Transcript(), chat.prompt_ids(opening)
    for text in ("Look.", "Done."):
        turn = chat.turn_ids(text)[: None if closed else -1]
        transcript.add_turn(prompt, turn, [0.0] * len(turn))
        transcript.add_reply(Observation("", done=False))
        prompt = [*chat.seen_later(prompt, turn), *chat.continuation_ids("A\nledger <b>.", closed=closed)]
    return transcript.columns()


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("closed", [True, False])
def test_messages_are_those_that_were_said(opening: list[Message], closed: bool) -> None:
    chat = ChatFormat(load_tokenizer(SHIPPED))
    said = [
        {"role": "assistant", "content": "Look."},
        {"role": "user", "content": "A\nledger <b>."},
        {"role": "assistant", "content": "Done."},
    ]
    assert Conversations(chat).parts(played(chat, opening, closed=closed)) == (opening, said)


@pytest.mark.parametrize(
    ("name", "earlier"), [*((n, "kept") for n in FAMILIES), *((n, "as_template") for n in DROPPING)]
)
def test_every_template_gives_back_who_said_what(name: str, earlier: str) -> None:
    family = FAMILIES[name]
    settings = family.settings.model_copy(update={"earlier_thoughts": earlier})
    chat = ChatFormat(tokenizer_of(family), settings=settings)
    opening, (look, ledger, done) = Conversations(chat).parts(played(chat, OPENINGS[0], closed=True))
    assert opening[-1]["content"].endswith("Pay.\n\nNow.")
    assert "Act.\n\nWell." in "".join(message["content"] for message in opening)
    assert [look["role"], ledger["role"], done["role"]] == ["assistant", "user", "assistant"]
    assert (look["content"].endswith("Look."), ledger["content"]) == (True, "A\nledger <b>.")
    assert done["content"].endswith("Done.")
    assert not any("<|" in message["content"] for message in (*opening, look, ledger, done))


CHAT = ChatFormat(load_tokenizer(Path(__file__).parents[3] / "data" / "base_policies" / "pocket"))
ASKED: list[Message] = [{"role": "system", "content": "Act."}, {"role": "user", "content": "Pay."}]


def row(task: str, number: int, value: float, said: str = "", **more: Any) -> dict[str, Any]:
    """Return a rollout of one turn."""
    prompt, turn = CHAT.prompt_ids(ASKED), CHAT.turn_ids(said or f"Turn {number}.")
    tokens = {
        "token_ids": prompt + turn,
        "policy_mask": [False] * len(prompt) + [True] * len(turn),
        "turn_index": [-1] * len(prompt) + [0] * len(turn),
        "engine_logprobs": [0.0] * len(prompt) + [-0.5] * len(turn),
    }
    facts = {"difficulty": 1, "staleness": 0, "engine_version": "5"}
    return {**played_row(task, task[:1], "train", value, number), **facts, **tokens, **more}


def exported(folder: Path, rows: list[dict[str, Any]]) -> Any:
    source = RolloutSource("i003", "train", table_of(rows, ROLLOUTS), "pocketworld", "a-model")
    return export_rollouts(source, Conversations(CHAT), folder)


def test_a_row_has_what_was_said_the_verdict_and_the_tokens(tmp_path: Path) -> None:
    counts = exported(tmp_path / "out", [row("a_1", 0, 1.0)])
    assert (counts.rollouts, counts.preferences, counts.void) == (1, 0, 0)
    (found,) = pq.read_table(tmp_path / "out" / "rollouts" / "train.parquet").to_pylist()
    assert found["messages"] == [*ASKED, {"role": "assistant", "content": "Turn 0."}]
    assert (found["return"], found["success"], found["tests_passed"]) == (1.0, True, ["the answer is right"])
    assert found["token_ids"] == row("a_1", 0, 1.0)["token_ids"]
    assert found["logprobs"] == row("a_1", 0, 1.0)["engine_logprobs"]
    assert not (tmp_path / "out" / "preferences").exists()


def test_pairs_are_the_best_and_the_worst_of_a_task_where_they_differ(tmp_path: Path) -> None:
    rows = [row("a_1", 0, 0.5), row("a_1", 1, 1.0), row("a_1", 2, 0.25), row("a_1", 3, 1.0)]
    rows += [row("b_1", 0, 0.5), row("b_1", 1, 0.5)]
    assert exported(tmp_path / "out", rows).preferences == 1
    (pair,) = pq.read_table(tmp_path / "out" / "preferences" / "train.parquet").to_pylist()
    assert pair["prompt"] == ASKED
    assert [pair[name] for name in ("chosen", "rejected")] == [
        [{"role": "assistant", "content": f"Turn {number}."}] for number in (1, 2)
    ]
    assert (pair["task_id"], pair["chosen_return"], pair["rejected_return"]) == ("a_1", 1.0, 0.25)


def test_rollouts_without_a_verdict_are_left_out_and_counted(tmp_path: Path) -> None:
    void = row("a_1", 1, 0.0, end_reason="cut_by_early_stop")
    counts = exported(tmp_path / "out", [row("a_1", 0, 1.0), void])
    assert (counts.rollouts, counts.preferences, counts.void) == (1, 0, 1)
    assert "1 rollouts in the world `pocketworld`, recorded by loopline; 1 that have no verdict are left out." in (
        tmp_path / "out" / "README.md"
    ).read_text(encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"^i003: no rollouts with a verdict, of 1$"):
        exported(tmp_path / "none", [void])
    assert not (tmp_path / "none").exists()


def test_the_card_names_the_files_of_each_config(tmp_path: Path) -> None:
    exported(tmp_path / "out", [row("a_1", 0, 0.5), row("a_1", 1, 1.0)])
    configs = (metadata_load(tmp_path / "out" / "README.md") or {})["configs"]
    assert [config["config_name"] for config in configs] == ["rollouts", "preferences"]
    for config in configs:
        (file,) = config["data_files"]
        assert file["split"] == "train" and (tmp_path / "out" / file["path"]).is_file()
    assert configs[0]["default"] is True
