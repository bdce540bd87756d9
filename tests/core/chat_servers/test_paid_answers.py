import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.core.chat_servers.answers import ChatApiError, ChatTurn
from tasks.core.chat_servers.paid_answers import DAY_S, LONGEST_DAYS, PAID_ANSWERS, PaidAnswer, PaidAnswers, request_key
from tasks.core.interfaces.engine import GenerationRequest, SamplingSettings

ROOT = Path(__file__).parents[3]
PAID = PaidAnswer(ChatTurn("naïve\n\0", False, "m-dated", 100, 40, 10), 3)
WRITER = """
import sys, time
from itertools import count
from tasks.core.chat_servers.answers import ChatTurn
from tasks.core.chat_servers.paid_answers import PaidAnswer, PaidAnswers
paid = PaidAnswers()
for number in count():
    key = f"{sys.argv[1]}-{number}"
    paid.keep(key, "train_1", PaidAnswer(ChatTurn(key * 500, True, "m", 1, 0, 1), 1))
    print(key, flush=True)
    time.sleep(0.005)
"""


def test_an_answer_is_found_whole_until_it_is_dropped() -> None:
    paid = PaidAnswers()
    for key in ("a", "b", "c"):
        paid.keep(key, f"task of {key}", PAID)
    paid.close()
    paid = PaidAnswers()
    assert (paid.find("a"), paid.find("d")) == (PAID, None)
    paid.drop(["task of a", "task of b", "d"])
    assert [paid.find(key) for key in "abc"] == [None, None, PAID]
    paid.close()


def test_each_sample_of_a_request_has_its_own_key() -> None:
    def key(name: str = "train_1/0", seed: int = 1, **asked: object) -> str:
        request = GenerationRequest(name, [1], SamplingSettings(1.0, 5, ()), seed)
        return request_key({"model": "m", "messages": [{"role": "user", "content": "hi"}], **asked}, request)

    keys = [key(), key("train_1/1"), key(seed=2), key(model="n"), key(temperature=0.5), key(messages=[])]
    assert len({*keys}) == len(keys) and keys[0] == key()


def test_what_nobody_came_back_for_leaves_and_frees_its_room() -> None:
    paid = PaidAnswers()
    for number in range(200):
        paid.keep(str(number), "train_1", PaidAnswer(ChatTurn("x" * 5000, True, "m", 1, 0, 1), 1))
    paid.close()
    with sqlite3.connect(PAID_ANSWERS) as file:
        file.execute("UPDATE answers SET paid_at = paid_at - ? WHERE request != '7'", (LONGEST_DAYS * DAY_S,))
    file.close()
    assert PAID_ANSWERS.stat().st_size > 1e6
    paid = PaidAnswers()
    assert paid.find("7") is not None and paid.find("8") is None
    paid.close()
    assert PAID_ANSWERS.stat().st_size < 1e5


def test_kills_lose_no_answer_of_two_processes_that_share_the_file() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, name], env=environment, stdout=subprocess.PIPE, text=True)
        for name in ("first", "second")
    ]
    kept: list[str] = []
    for writer in writers:
        assert writer.stdout is not None
        kept += [writer.stdout.readline() for _ in range(20)]
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        kept += [line for line in writer.communicate()[0].splitlines(keepends=True) if line.endswith("\n")]
    paid = PaidAnswers()
    texts = {key: paid.find(key) for key in (line.strip() for line in kept)}
    paid.close()
    assert len(texts) >= 40
    assert all(found is not None and found.answer.text == key * 500 for key, found in texts.items())


def test_an_answer_of_other_code_is_bought_again() -> None:
    paid = PaidAnswers()
    paid.keep("a", "train_1", PAID)
    with sqlite3.connect(PAID_ANSWERS) as file:
        file.execute("""UPDATE answers SET paid = '{"text": "hi"}'""")
    file.close()
    assert paid.find("a") is None
    paid.close()


def test_a_file_that_cannot_be_used_is_one_error_that_says_what_to_do(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"no database" * 500)
    with pytest.raises(ChatApiError, match=r"damaged\.sqlite.*file is not a database.*delete it"):
        PaidAnswers(damaged)
    with pytest.raises(ChatApiError, match="unable to open"):
        PaidAnswers(tmp_path)
