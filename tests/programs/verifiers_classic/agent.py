"""An environment of verifiers with a tool and a rubric, evaluated by the package."""

import json
import os
import sys
from pathlib import Path

import verifiers as vf
from datasets import Dataset

task = json.loads(Path(os.environ["LOOPLINE_TASK"]).read_text())


def price(item: str) -> int:
    """Return what an item costs."""
    return {"tea": 3, "cake": 4}[item]


def correct(completion: vf.Messages, answer: str) -> float:
    """Return 1 for the right number, said at last."""
    return float(completion[-1].content.strip() == answer)


row = {"question": task["question"], "answer": task["answer"]}
shop = vf.ToolEnv(tools=[price], dataset=Dataset.from_list([row]), rubric=vf.Rubric(funcs=[correct]))
client = vf.ClientConfig(api_base_url=os.environ["OPENAI_BASE_URL"], api_key_var="OPENAI_API_KEY")
(outcome,) = shop.evaluate_sync(client=client, model="policy")["outputs"]
if outcome.get("error"):
    sys.exit(str(outcome["error"]))
Path(os.environ["LOOPLINE_RESULT"]).write_text(json.dumps({"reward": outcome["reward"]}))
