"""One update of a project that a test prepared, on the host that runs it: `python -m tests.hosts.one_update PROJECT`.

As the stage does it, without DVC. Its parameters are in PROJECT/params.json.
"""

import sys
from pathlib import Path

from flows.dag.stages import find_stage
from flows.errors import is_expected
from flows.signals import exit_on_sigterm
from flows.workers.executors import ranks_of
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import UpdateInputs
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.records.layout import Layout
from tasks.update_policy import update_policy


def main(project: Path) -> int:
    exit_on_sigterm()
    params = Params.model_validate_json((project / "params.json").read_text())
    cache = ProcessCache()
    ranks = ranks_of(find_stage("update_policy"), "i001", params, cache)
    try:
        update_policy(StageContext(Layout(project), UpdateInputs.of(params), "i001", cache, ranks=ranks))
    except Exception as error:
        if not is_expected(error):
            raise
        print(error, file=sys.stderr)
        return 1
    finally:
        cache.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
