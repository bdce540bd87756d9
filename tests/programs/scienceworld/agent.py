"""ScienceWorld by its own package: the policy names an action in each turn, and the simulator scores."""

import json
import os
from pathlib import Path

from openai import OpenAI
from scienceworld import ScienceWorldEnv

RULES = "You do an experiment in a house of ten rooms. Answer with one action, such as: open door to kitchen"
task = json.loads(Path(os.environ["LOOPLINE_TASK"]).read_text())
simulator = ScienceWorldEnv()
simulator.load(task["type"], task["variation"], "")
seen, said = simulator.reset()
opening = f"{simulator.get_task_description()}\n\n{seen}"
messages = [{"role": "system", "content": RULES}, {"role": "user", "content": opening}]
client = OpenAI()
for _ in range(task.get("moves", 100)):
    answer = client.chat.completions.create(model="policy", messages=messages).choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    seen, _, over, said = simulator.step((answer.content or "").strip().lower())
    messages.append({"role": "user", "content": seen})
    if over:
        break
simulator.close()
Path(os.environ["LOOPLINE_RESULT"]).write_text(json.dumps({"reward": max(0, said["score"]) / 100}))
