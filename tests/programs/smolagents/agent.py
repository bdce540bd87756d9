"""smolagents' own code agent: it writes Python, which the package's interpreter runs, until it calls final_answer."""

import json
import os
from pathlib import Path

from smolagents import CodeAgent, OpenAIServerModel, tool

task = json.loads(Path(os.environ["LOOPLINE_TASK"]).read_text())


@tool
def price(item: str) -> int:
    """Return what an item costs.

    Args:
        item: its name
    """
    return {"tea": 3, "cake": 4}[item]


model = OpenAIServerModel("policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
answer = CodeAgent(tools=[price], model=model, max_steps=4, verbosity_level=0).run(task["question"])
Path(os.environ["LOOPLINE_RESULT"]).write_text(json.dumps({"reward": float(answer == task["answer"])}))
