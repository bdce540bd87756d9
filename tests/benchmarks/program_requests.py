"""Processor time of a request through the endpoint of world `program`, beside the same turns in process.

    .ci/env python -m tests.benchmarks.program_requests

Both recite the same turns with the same chat format: what differs is the program, its client, HTTP and the matching of
prompts. The program's start is told apart, since a program starts once in an episode.
"""

import json
import os
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from tasks.core.config.collection import AgentLimits
from tasks.core.config.splits import SPLITS
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world import Evaluation, Message, Observation, Task
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.recital import ScriptedEngine
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts

TURNS, EPISODES = 40, 8
PROGRAM = """
import http.client, json, os
from urllib.parse import urlsplit
place = urlsplit(os.environ["OPENAI_BASE_URL"])
task = json.load(open(os.environ["LOOPLINE_TASK"]))
messages, server = [{"role": "user", "content": "Turn 0"}], http.client.HTTPConnection(place.hostname, place.port)
key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
for turn in range(1, task["turns"] + 1):
    server.request("POST", place.path + "/chat/completions", json.dumps({"messages": messages}), key)
    messages.append(json.load(server.getresponse())["choices"][0]["message"])
    messages.append({"role": "user", "content": f"Turn {turn}"})
json.dump({"reward": 1.0}, open(os.environ["LOOPLINE_RESULT"], "w"))
"""


class InProcess:
    """The same conversation as a world of this process; a world and its own episode."""

    def __init__(self, turns: int) -> None:
        self.turns, self.played = turns, 0
        self.prompt: list[Message] = [{"role": "user", "content": "Turn 0"}]

    def open(self, task_id: str, seed: int) -> "InProcess":
        return InProcess(self.turns)

    def step(self, text: str) -> Observation:
        self.played += 1
        return Observation(f"Turn {self.played}", done=self.played == self.turns)

    def evaluate(self) -> Evaluation:
        return Evaluation(("done",), ())

    def close(self) -> None: ...


def processor_s(world: object, turns: int) -> float:
    """Return the processor seconds of playing, those of ended programs included."""
    chat = load_chat_format(Path("data/base_policies/pocket"))
    engine = ScriptedEngine("scripted", chat, lambda task, seed: ["Nothing."] * turns)
    task = Task("train1", "train1", 1, "train", "Say nothing.")
    limits = AgentLimits(max_turns=turns, max_tokens_per_turn=64)
    settings = PlaySettings(temperature=1.0, limits=limits, max_concurrent_episodes=4, world_retries=0)
    before = sum(os.times()[:4])
    rows = play_rollouts(world, engine, chat, plan_rollouts([task], EPISODES, 1), settings, policy=None)  # type: ignore[arg-type]
    assert {(row["end_reason"], len(row["turns"])) for row in rows} == {("completed", turns)}
    return sum(os.times()[:4]) - before


def through_the_endpoint(turns: int) -> float:
    """Return the same for the program."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "agent.py").write_text(PROGRAM)
        lines = [{"id": f"{split}1", "split": split, "turns": turns} for split in SPLITS]
        (place / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        config = WorldSection.of("program", program={"command": ("python", "agent.py"), "folder": folder})
        prepare_world_folder(config, place / "world")
        with closing(open_world(config, place / "world")) as world:
            return processor_s(world, turns)


def main() -> None:
    processor_s(InProcess(TURNS), TURNS)  # imports and caches
    start = through_the_endpoint(1) - processor_s(InProcess(1), 1)
    whole = through_the_endpoint(TURNS) - processor_s(InProcess(TURNS), TURNS)
    requests = EPISODES * (TURNS - 1)
    figures = {"ms_per_request": 1000 * (whole - start) / requests, "ms_per_start": 1000 * start / EPISODES}
    json.dump({name: round(value, 2) for name, value in figures.items()}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
