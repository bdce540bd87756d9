from collections.abc import Iterator

import pytest

from tasks.core.sandbox import Repl, Sandbox, SandboxLimits

LIMITS = SandboxLimits(cpu_seconds_per_run=0.3, wall_seconds_per_run=5.0, output_chars=200, memory_bytes=64 * 2**20)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox(LIMITS)
    yield sandbox
    sandbox.close()


@pytest.fixture
def repl(sandbox: Sandbox) -> Iterator[Repl]:
    repl = sandbox.start(seed=7)
    yield repl
    repl.close()
