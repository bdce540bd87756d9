"""Serve a world of ours by the OpenEnv protocol, many sessions at once.

    python -m flows.world_server WORLD [--port 8000] [--host 127.0.0.1] [--sessions 64] [--folder FOLDER]
                                       [--set world.KNOB=VALUE ...]

WORLD: pocketworld, appworld, bfcl, ... as `world.name` in params.yaml; `--set` changes its knobs. The tasks are
generated at the start from `world.seed`, or those of FOLDER, a run's data/world say, whose knobs `--set` repeats; where
there is no such folder they are kept there for the next start. /metadata has their digest as the version. Agents' code
runs confined as in training. Ends with Ctrl-C or SIGTERM, and all that sessions have open with it. Exit code 1: the
world cannot be prepared or read; 2: there is no such world; 3: the address is taken.
"""

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from flows.arguments import LAST_PORT, whole_number
from flows.configure import params_of
from flows.errors import is_expected
from flows.signals import exit_on_sigterm
from flows.world_server.server import serve
from tasks.core.config.params import ParamsError
from tasks.core.config.world import WorldConfig
from tasks.core.records.files import digest
from tasks.core.worlds.registry import open_world, prepare_world_folder

_ANY_LENGTH = f"collection.limits.max_turns={10**9}"
"""How many turns are played is up to who plays."""


def main(arguments: list[str] | None = None) -> int:
    """Parse, prepare, serve."""
    parser = argparse.ArgumentParser(prog="python -m flows.world_server", description="Serve a world by OpenEnv.")
    parser.add_argument("world", help="as world.name in params.yaml")
    parser.add_argument("--host", default="127.0.0.1", help="whoever reaches it may have agents' code run")
    parser.add_argument("--port", type=whole_number(0, LAST_PORT), default=8000, help="0: a free one")
    parser.add_argument("--sessions", type=whole_number(1), default=64, help="how many may be open at once")
    parser.add_argument("--folder", type=Path, help="with the tasks; made where there is none (default: made anew)")
    parser.add_argument("--set", action="append", default=[], metavar="world.KNOB=VALUE", help="change one knob")
    parsed = parser.parse_args(arguments)
    if parsed.folder is not None and parsed.folder.exists() and not parsed.folder.is_dir():
        parser.error(f"argument --folder: {parsed.folder} is no folder")
    exit_on_sigterm()
    try:
        config = params_of("default", [*parsed.set, f"world.name={parsed.world}", _ANY_LENGTH]).world
    except ParamsError as error:
        print(f"flows.world_server: {error}", file=sys.stderr)
        return 2
    try:
        with _tasks(config, parsed.folder) as folder, closing(open_world(config, folder)) as world:
            serve(world, config.name, digest(folder), parsed.host, parsed.port, parsed.sessions)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        if not is_expected(error):
            raise
        print(f"flows.world_server: {error}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _tasks(config: WorldConfig, kept: Path | None) -> Iterator[Path]:
    with TemporaryDirectory() as temporary:
        folder = kept or Path(temporary) / "world"
        if not folder.exists():
            prepare_world_folder(config, folder)
        yield folder


if __name__ == "__main__":
    sys.exit(main())
