"""A task of Inspect with its own solver and scorer, evaluated by its own runner."""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate, system_message

task = json.loads(Path(os.environ["LOOPLINE_TASK"]).read_text())
sample = Sample(task["question"], target=task["answer"])
question = Task([sample], solver=[system_message("Answer with a number."), generate()], scorer=match(numeric=True))
with TemporaryDirectory() as logs:
    model = get_model("openai/policy", responses_api=False)
    (log,) = eval(question, model=model, display="none", log_dir=logs)
    if log.status != "success" or not log.samples:
        sys.exit(f"{log.status}: {log.error}")
    score = next(iter(log.samples[0].scores.values())).value
Path(os.environ["LOOPLINE_RESULT"]).write_text(json.dumps({"reward": float(score == "C")}))
