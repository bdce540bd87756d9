"""The making of an isolated interpreter, as data: what goes in, what runs once, what must work at the end."""

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class InterpreterRecipe:
    """An interpreter of its own, for a package that can't share the pipeline's."""

    name: str
    requirements: Path
    """Fully pinned list, without an index address: the user's pip configuration provides the index."""
    python: str
    """Version range of suitable interpreters, in uv's syntax."""
    overrides: Path | None = None
    """Requirements that replace those the packages declare, in uv's format."""
    dependencies: bool = True
    """False: install only the list, whatever dependencies the packages declare."""
    setup: tuple[str, ...] = ()
    """Arguments of `python -m`, run once after the installation."""
    check: str = ""
    """Python code that must run at the end. It byte-compiles whatever it imports, including what the set-up unpacked;
    without a check, all packages are byte-compiled."""
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
