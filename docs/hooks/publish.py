"""Published runs (docs/results/published), each made anew in a fresh clone of HEAD.

python docs/hooks/publish.py default        (names of profiles; each runs the whole pipeline once)

Variables of the caller hold, such as those of portable bits (docs/comparing.md), with which `smoke` is made.

"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from flows.published.records import PUBLISHED
from tasks.core.records.files import replacing

ROOT = Path(__file__).resolve().parents[2]


def publish(profile: str) -> Path:
    """Run a profile in a clone, and put what it publishes into this checkout."""
    with tempfile.TemporaryDirectory(prefix="loopline_publish") as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        variables = {**os.environ, "PYTHONPATH": str(clone)}
        for command in (["configure", profile], ["run"], ["publish", profile]):
            subprocess.run([sys.executable, "-m", "flows.cli", *command], cwd=clone, env=variables, check=True)
        with replacing(ROOT / PUBLISHED / profile) as temporary:
            shutil.copytree(clone / PUBLISHED / profile, temporary)
    return ROOT / PUBLISHED / profile


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(publish(name))
