"""Run one stage: what every `cmd:` of dvc.yaml calls.

    python -m flows.stage NAME [KEY]

Under `dvc repro` the stage runs in the stage server (flows/runners/stage_server.py), which the first stage of
that `dvc repro` starts and which ends with it, so that models, engines and worlds are loaded once; this process lends
it its standard streams, hands signals on, and ends with its exit code. Without a `dvc repro` above it, on systems other
than Linux, with LOOPLINE_WARM=0, or where no server can be started, the stage runs in this process.

Exit code 2: no such stage or key; 1: the stage failed; 137: the server was killed under it.
"""

import signal
import sys

from flows.runners.stage_client import run_in_server
from tasks.core.processes.caller_variables import settle_variables


def main(arguments: list[str]) -> int:
    """Have the stage run and return its exit code."""
    settle_variables()
    try:
        code = run_in_server(arguments)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if code is not None:
        return code
    # Late: where a server runs the stage, this process imports the standard library only.
    from flows.runners.single_stage import main as run_here

    return run_here(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
