"""Our episodes and verdicts against the package's own runner and evaluation, on all tasks and 2,000 random episodes.

python tests/benchmarks/tau2_verdicts.py [--every 1] [--random 2000]

Each task of four splits (`train: full`) with its solution, nothing, every fix, every fix and toggle, and a hand-over. A
difference ends the command with an error. Takes a quarter of an hour of processor time; the lane takes a sample.
"""

import argparse
import time

from result_file import write_result

from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.worlds.tau2.kind import TAU2
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.tasks import parted
from tasks.core.worlds.tau2.world import Tau2World
from tests.core.worlds.tau2.conftest import TICKET
from tests.core.worlds.tau2.test_verdicts import compare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="stride over the tasks")
    parser.add_argument("--random", type=int, default=2000, help="random episodes")
    arguments = parser.parse_args()
    python, begin = python_executable(INTERPRETERS, TAU2), time.perf_counter()
    pool = Tau2Pool(python)
    world = Tau2World(parted(*pool.tasks(), TICKET.train, 2502), pool, TICKET)
    try:
        same = compare(python, pool, world, arguments.every, arguments.random)
    finally:
        world.close()
    write_result("tau2_verdicts", {"same": same, "differing": 0, "seconds": round(time.perf_counter() - begin)}, ())


if __name__ == "__main__":
    main()
