"""The making of an isolated interpreter, as data: what goes in, what runs once, what must work at the end."""

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class InterpreterRecipe:
    """An interpreter of its own, for a package that can't share the pipeline's."""

    name: str
    requirements: Path
    """Fully pinned list, without any index address: the user's own pip configuration says where from."""
    python: str
    """Version range of interpreters that it works on, as uv takes it."""
    overrides: Path | None = None
    """Requirements that replace what the packages themselves declare, in uv's form."""
    dependencies: bool = True
    """False: the list is all that is installed, whatever the packages declare that they need."""
    setup: tuple[str, ...] = ()
    """Arguments of `python -m` that run once after the installation."""
    check: str = ""
    """Python code that must run at the end. What it imports is byte-compiled by it, also what the set-up unpacked;
    without a check the packages are, as a whole."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables of setup and check; `{folder}` stands for the interpreter's folder."""

    @property
    def digest(self) -> str:
        """Changes when the recipe does, so that an interpreter of an older recipe is never used."""
        content: tuple[object, ...] = (
            self.requirements.read_text(encoding="utf-8"),
            self.python,
            self.setup,
            self.check,
            self.variables,
        )
        if self.overrides is not None:
            content += (self.overrides.read_text(encoding="utf-8"),)
        if not self.dependencies:
            content += (self.dependencies,)
        return hashlib.sha256(repr(content).encode()).hexdigest()[:12]
