"""One update of a project that a test prepared, on the host that runs it: `python -m tests.hosts.one_update PROJECT`.

As the stage does it, without DVC. Its parameters are in PROJECT/params.json.
"""

import sys
from pathlib import Path

from flows.dag.stages import find_stage
from flows.signals import exit_on_sigterm
from flows.workers.executors import machines_of
from tasks.core.config.params import Params, ParamsError
from tasks.core.config.stage_inputs import UpdateInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.learner.launcher import RankFailed
from tasks.core.records.layout import Layout
from tasks.update_policy import update_policy


def main(project: Path) -> int:
    exit_on_sigterm()
    params = Params.model_validate_json((project / "params.json").read_text())
    machines = machines_of(find_stage("update_policy"), "i001", params)
    try:
        update_policy(StageContext(Layout(project), UpdateInputs.of(params), "i001", machines=machines))
    except (RankFailed, ParamsError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
