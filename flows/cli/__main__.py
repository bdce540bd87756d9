"""`python -m flows.cli` is `loopline`, where no script is installed."""

import gc
import sys

from flows.cli.app import main

if __name__ == "__main__":
    code = main()
    gc.freeze()  # else Python looks through all that torch loaded, for seconds, only to exit
    sys.exit(code)
