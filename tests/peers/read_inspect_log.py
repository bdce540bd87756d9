"""Read the logs of a folder by Inspect's own reader; runs in Inspect's interpreter: FOLDER BUNDLE -> a line of JSON."""

import json
import sys
from pathlib import Path

from inspect_ai.log import bundle_log_dir, list_eval_logs, read_eval_log, read_eval_log_sample

folder, bundle = sys.argv[1:]
(listed,) = list_eval_logs(folder)
header, whole = read_eval_log(listed, header_only=True), read_eval_log(listed)
first = read_eval_log_sample(listed, whole.samples[0].id, whole.samples[0].epoch)
bundle_log_dir(folder, bundle)
print(
    json.dumps(
        {
            "status": header.status,
            "task": header.eval.task,
            "model": header.eval.model,
            "dataset": [header.eval.dataset.name, header.eval.dataset.samples],
            "epochs": header.eval.config.epochs,
            "metrics": {name: metric.value for name, metric in header.results.scores[0].metrics.items()},
            "samples": [
                [one.id, one.epoch, one.scores["success"].value, [message.role for message in one.messages]]
                for one in whole.samples
            ],
            "first": {"input": first.input, "said": [message.text for message in first.messages]},
            "viewer": sorted(path.name for path in Path(bundle).iterdir()),
        }
    )
)
