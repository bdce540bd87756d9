"""An agent of the OpenAI Agents SDK with a tool, over chat completions."""

import json
import os
from pathlib import Path

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

task = json.loads(Path(os.environ["LOOPLINE_TASK"]).read_text())
set_default_openai_api("chat_completions")
set_tracing_disabled(True)


@function_tool
def price(item: str) -> int:
    """Return what an item costs."""
    return {"tea": 3, "cake": 4}[item]


clerk = Agent(name="Clerk", instructions="Answer with a number.", model="policy", tools=[price])
answer = Runner.run_sync(clerk, task["question"]).final_output
Path(os.environ["LOOPLINE_RESULT"]).write_text(json.dumps({"reward": float(answer == task["answer"])}))
