"""The code of an assistant turn: which of its text is run. One rule for all worlds, and for what replays a turn.

Facts of the reference (apple/ml-loop, phi_agents/utils/appworld.py): a block opens at ```python or ```py, anywhere in
the text and in lower case, and ends at the next three backticks or with the turn; all blocks are run, as one text; text
without such a block is not code. A fence is not asked to stand at the beginning of a line, as CommonMark wants it
(and markdown-it-py with it), since models write blocks within a line.
"""

import re
from dataclasses import dataclass

from tasks.core.config.world import CodeBlocks

_FENCE = "```"
_FENCED = re.compile(
    r"""(?P<fence>`{3,}+)
    (?: [ \t]*(?:python3?|py)(?!\w) [ \t]*(?:\r?\n)? (?P<code>.*?) (?:`{3,}+|\Z)
      | .*? (?:(?P=fence)`*+(?!\w)|\Z)
    )""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
_REFERENCE = re.compile(r"```py(?:thon)?\n?(?P<code>.*?)(?P<closing>```|\Z)", re.DOTALL)


@dataclass(frozen=True)
class TurnCode:
    """The code that a turn runs."""

    text: str
    blocks: int
    """Code blocks in the turn, 0 or more."""
    ran: int
    """Those of them that `text` holds."""


def turn_code(said: str, rule: CodeBlocks) -> TurnCode:
    """The code of the assistant turn `said`; its `blocks` is 0 when there is none.

    first: a code block opens with three backticks or more and the tag python, python3 or py in any case, and ends at
    the next three backticks or with the turn. Any other fenced block is passed over whole, with what looks like code in
    it: it ends at a fence as long as its own that no word follows directly, or with the turn. The first one runs.

    first_or_bare: as first; but a turn without any fence is code as a whole, for clients that take the fences off.

    all: the reference's rule to the letter. Every block's code is stripped, a closed block's gets a line break, and all
    are joined; the rest of a longer tag (python3, pycon) counts as code, as there, and other blocks are text.
    """
    if rule == "first_or_bare" and said.strip() and _FENCE not in said:
        return TurnCode(said, 1, 1)
    return _all_blocks(said) if rule == "all" else _first_block(said)


def _first_block(said: str) -> TurnCode:
    blocks = [match["code"] for match in _FENCED.finditer(said) if match["code"] is not None]
    return TurnCode(blocks[0] if blocks else "", len(blocks), min(1, len(blocks)))


def _all_blocks(said: str) -> TurnCode:
    found = list(_REFERENCE.finditer(said))
    text = "".join(match["code"].strip() + ("\n" if match["closing"] else "") for match in found)
    return TurnCode(text, len(found), len(found)) if text else TurnCode("", 0, 0)
