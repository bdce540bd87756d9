"""The code in an assistant turn: which part of its text is run. One rule for all worlds and for replaying turns.

The reference (apple/ml-loop, phi_agents/utils/appworld.py) does this: a block opens at ```python or ```py, anywhere in
the text and in lower case, and ends at the next three backticks or with the turn; all blocks are run, as one text; text
without such a block is not code. CommonMark (and markdown-it-py with it) requires a fence at the beginning of a line;
this rule does not, because models write blocks within a line.
"""

import re
from dataclasses import dataclass

from tasks.core.config.world import CodeBlocks

_FENCE = "```"
_FENCED = re.compile(
    r"""(?P<fence>`{3,}+)
    (?: [ \t]*(?:python3?|py)(?!\w) [ \t]*(?:\r?\n)? (?P<code>.*?) (?:(?P=fence)`*+|\Z)
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
    """Number of code blocks in the turn."""
    ran: int
    """Number of blocks that `text` holds."""


def turn_code(turn: str, rule: CodeBlocks) -> TurnCode:
    """Return the code of the assistant turn `turn`; its `blocks` is 0 if there is none.

    first: a code block opens with three or more backticks and the tag python, python3 or py in any case, and ends at
    the next fence at least as long as its own or with the turn. Any other fenced block is skipped whole, including
    anything in it that looks like code: it ends with the turn, or at such a fence that no word directly follows. The
    first code block runs.

    first_or_bare: like first, but a turn without any fence is code as a whole, for clients that strip the fences.

    all: exactly the reference's rule. Every block's code is stripped, a closed block's code gets a line break, and all
    are joined. As in the reference, the rest of a longer tag (python3, pycon) counts as code, and other blocks are
    text.
    """
    if rule == "first_or_bare" and turn.strip() and _FENCE not in turn:
        return TurnCode(turn, 1, 1)
    return _all_blocks(turn) if rule == "all" else _first_block(turn)


def _first_block(turn: str) -> TurnCode:
    blocks = [match["code"] for match in _FENCED.finditer(turn) if match["code"] is not None]
    return TurnCode(blocks[0] if blocks else "", len(blocks), min(1, len(blocks)))


def _all_blocks(turn: str) -> TurnCode:
    matches = list(_REFERENCE.finditer(turn))
    text = "".join(match["code"].strip() + ("\n" if match["closing"] else "") for match in matches)
    return TurnCode(text, len(matches), len(matches)) if text else TurnCode("", 0, 0)
