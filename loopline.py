"""The script `loopline`: runs the command (flows/cli) of the checkout that the current folder is in, with its code.

It is all that a wheel of this project installs. The rest is an application: it runs from its checkout.
"""

import gc
import sys
from pathlib import Path


def main() -> int:
    """Run the command and return its exit code; 1 where no checkout is at hand."""
    folder = Path.cwd()
    checkout = next((above for above in (folder, *folder.parents) if (above / "flows" / "cli").is_dir()), None)
    if checkout is None:
        print(f"loopline: {folder} is in no checkout of loopline; clone the repository, run it there", file=sys.stderr)
        return 1
    sys.path.insert(0, str(checkout))
    from flows.cli.app import main as command

    code = command(checkout=checkout)
    gc.freeze()  # else Python looks through all that torch loaded, for seconds, only to exit
    return code


if __name__ == "__main__":
    sys.exit(main())
