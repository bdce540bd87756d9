"""τ²-bench's own solo agent, played by the package's runner and judged by its evaluation."""

import json
import os
from pathlib import Path

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks GitHub for prices at each start

from tau2.config import DEFAULT_MAX_STEPS
from tau2.run import get_tasks, run_task

ONLY_CALLS = "LLMSoloAgent only supports tool calls."
task = json.loads(Path(os.environ["LOOPLINE_TASK"]).read_text())
(ticket,) = get_tasks("telecom", "full", [task["id"]])
arguments = {
    "temperature": 1.0,
    "additional_drop_params": ["tool_choice"],  # of litellm: the agent forces a call, which no policy can promise
}
try:
    simulation = run_task(
        "telecom",
        ticket,
        "llm_agent_solo",
        "dummy_user",
        llm_agent="openai/policy",
        llm_args_agent=arguments,
        max_steps=DEFAULT_MAX_STEPS,
    )
    reward = simulation.reward_info.reward
except ValueError as error:  # a turn without a call, which the runner counts as a failed sample
    if str(error) != ONLY_CALLS:
        raise
    reward = 0.0
Path(os.environ["LOOPLINE_RESULT"]).write_text(json.dumps({"reward": reward}))
