"""Ask which of some letters comes last: an agent of one turn, with the standard library alone."""

import json
import os
import random
import string
import urllib.request
from pathlib import Path

task = json.loads(Path(os.environ["LOOPLINE_TASK"]).read_text())
letters = random.Random(task["id"]).sample(string.ascii_lowercase, task.get("letters", 3))
question = {"role": "user", "content": f"Which comes last: {', '.join(letters)}?"}
request = urllib.request.Request(
    f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
    json.dumps({"model": "policy", "messages": [question]}).encode(),
    {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
)
with urllib.request.urlopen(request) as response:
    said = json.load(response)["choices"][0]["message"]["content"]
reward = float(said.strip() == letters[-1])
Path(os.environ["LOOPLINE_RESULT"]).write_text(json.dumps({"reward": reward}))
