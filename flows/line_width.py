"""Lines of an answer broken at the width of the terminal, or at 80 columns where there is none."""

from collections.abc import Iterable, Iterator
from shutil import get_terminal_size
from textwrap import wrap

_LEAST, _MOST = 60, 120


def fitted(lines: Iterable[str], hanging: int = 4) -> Iterator[str]:
    """Yield `lines`, the longer ones broken between words; what follows is indented `hanging` columns more."""
    width = min(max(get_terminal_size().columns, _LEAST), _MOST)
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        broken = wrap(
            line.expandtabs(),
            width,
            subsequent_indent=indent + " " * hanging,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
        yield from broken or [""]
