"""The script `loopline`: runs the command of the checkout in the current folder (flows/cli), with that checkout's code.

It is all that a wheel of this project installs. The rest is an application: it runs from its checkout.
"""

import gc
import sys
from pathlib import Path


def main() -> int:
    """Run the command and return its exit code; 1 where no checkout is at hand."""
    folder = Path.cwd()
    if (folder / "flows" / "cli").is_dir():
        sys.path.insert(0, str(folder))
    try:
        from flows.cli.app import main as command
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("flows"):
            raise
        print(f"loopline: {folder} is no checkout of loopline; clone the repository and run it there", file=sys.stderr)
        return 1
    code = command()
    gc.freeze()  # else Python looks through all that torch loaded, for seconds, only to exit
    return code


if __name__ == "__main__":
    sys.exit(main())
