"""An environment of verifiers, evaluated by the package: its loop, its chat program, its tools' server, its rewards."""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from verifiers.v1.cli.eval.main import main

task = json.loads(Path(os.environ["LOOPLINE_TASK"]).read_text())
os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # where the tools' server finds them
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # uv, with which it starts its chat program
config = {
    "env": {
        "taskset": {"id": "store", **task["taskset"]},
        "agent": {"runtime": {"type": "subprocess"}, "harness": {"id": "null"}},
    },
    "client": {"base_url": os.environ["OPENAI_BASE_URL"], "api_key_var": "OPENAI_API_KEY"},
    "model": "policy",
    "push": False,
    "rich": None,
}
with TemporaryDirectory() as runs:
    file = Path(runs) / "eval.json"
    file.write_text(json.dumps({**config, "output_dir": runs, "run": {"dir": "run"}}))
    main(["@", str(file)])
    (line,) = (Path(runs) / "run" / "traces.jsonl").read_text().splitlines()
(trace,) = json.loads(line)["traces"]
if trace["errors"] or not trace["ok"]:
    sys.exit(str(trace["errors"]))
reward = sum(part["score"] * part["weight"] for part in trace["rewards"].values() if part)
Path(os.environ["LOOPLINE_RESULT"]).write_text(json.dumps({"reward": reward}))
