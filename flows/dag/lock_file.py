"""dvc.lock in the bytes that DVC writes, with only those stages put into YAML anew that changed.

DVC parses and writes the whole file after each stage, in pure Python, for the sake of comments that no lock has. At 90
iterations that is seconds a stage. `loopline run` and `.ci/env dvc` (.ci/bin/dvc) write this way; both replace the
private seam `dvc.dvcfile.modify_yaml`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from tasks.core.records.files import replacing

_SIMPLE_TEXT = re.compile(r"[\w./@ -]{0,60}")


class _Block(NamedTuple):
    entry: dict[str, Any]
    lines: str


class LockFile:
    """A dvc.lock that is rewritten often. Its content is remembered, and read anew where somebody else wrote since."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text: str | None = None
        self._content: dict[str, Any] = {}
        self._blocks: dict[str, _Block] = {}

    @contextmanager
    def rewritten(self) -> Iterator[dict[str, Any]]:
        """Yield the content, whose stages may come, go and be replaced by others, and write it, atomically, in the end.

        A stage's own entry must not be changed in place: it would not be seen. Nothing is written if the block fails.
        """
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        content = self._content if text == self._text else _libyaml().load(text) or {}
        self._text = None  # the block may fail half-way
        yield content
        self._blocks = {name: self._block(name, entry) for name, entry in (content.get("stages") or {}).items()}
        written = "".join(self._section(name, value) for name, value in content.items()) or "{}\n"
        with replacing(self._path) as temporary:
            temporary.write_text(written, encoding="utf-8")
        stages = {name: block.entry for name, block in self._blocks.items()}
        self._text, self._content = written, {**content, "stages": stages} if "stages" in content else content

    def _block(self, name: str, entry: dict[str, Any]) -> _Block:
        known = self._blocks.get(name)
        if known is not None and known.entry is entry:
            return known
        plain = _plain(entry)
        return _Block(plain, _dumped({"stages": {name: plain}}).removeprefix("stages:\n"))

    def _section(self, name: str, value: object) -> str:
        if name == "stages" and self._blocks:
            return "stages:\n" + "".join(block.lines for block in self._blocks.values())
        return _dumped({name: _plain(value)})


@contextmanager
def quick_lock_file() -> Iterator[None]:
    """Make DVC write dvc.lock by `LockFile` in this process, whether in `loopline run` or in `.ci/env dvc repro`."""
    import dvc.dvcfile as seam

    rewrite: Callable[..., AbstractContextManager[dict[str, Any]]] = seam.modify_yaml
    locks: dict[str, LockFile] = {}

    def modify_yaml(path: str, fs: Any = None) -> AbstractContextManager[dict[str, Any]]:
        if Path(path).name != seam.LOCK_FILE:
            return rewrite(path, fs=fs)
        return locks.setdefault(path, LockFile(Path(path))).rewritten()

    seam.modify_yaml = modify_yaml
    try:
        yield
    finally:
        seam.modify_yaml = rewrite


def _dumped(content: dict[str, Any]) -> str:
    """Return `content` in the bytes that DVC's writer gives, by libyaml where it surely writes the same."""
    from dvc.utils.serialize import dumps_yaml

    if not _is_simple(content):
        return str(dumps_yaml(content))
    stream = StringIO()
    _libyaml().dump(content, stream)
    return stream.getvalue()


def _libyaml() -> Any:
    from ruamel.yaml import YAML

    libyaml: Any = YAML(typ="safe")
    libyaml.default_flow_style = False
    libyaml.sort_base_mapping_type_on_output = False
    libyaml.allow_unicode = True
    return libyaml


def _plain(value: Any) -> Any:
    """Without DVC's OrderedDicts, which a safe dumper would mark as such."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _is_simple(value: Any) -> bool:
    """Return whether libyaml surely writes `value` as DVC does: no nulls, nothing to quote, no line to break."""
    if isinstance(value, dict):
        return all(_is_simple(name) and _is_simple(inner) for name, inner in value.items())
    if isinstance(value, list):
        return all(_is_simple(inner) for inner in value)
    return bool(_SIMPLE_TEXT.fullmatch(value)) if isinstance(value, str) else value is not None
