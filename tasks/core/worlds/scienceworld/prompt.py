"""Texts of a conversation in ScienceWorld."""

from tasks.core.interfaces.world import Message
from tasks.core.worlds.text_games.prompt import PLAIN_FORMAT, SYSTEM_PROMPT, THINKING_FORMAT

RULES = """You are in a house with several rooms, and do a science experiment, one action a turn. Actions:
open OBJ, close OBJ: doors and containers
go to ROOM: through an open door
look around, look at OBJ, look in OBJ, read OBJ, inventory, task
pick up OBJ, put down OBJ, move OBJ to OBJ, pour OBJ in OBJ, dunk OBJ in OBJ, mix OBJ
activate OBJ, deactivate OBJ, use OBJ [on OBJ], connect OBJ to OBJ, disconnect OBJ, eat OBJ, flush OBJ
focus on OBJ: tells what the task is about; a wrong focus fails the task
wait1: one tick of the clock, wait: ten of them
When an action is ambiguous you are asked for the number of what you meant."""


def opening(description: str, seen: str, ending: str) -> list[Message]:
    """The prompt of an episode."""
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": f"{RULES}\n\n{description}\n\n{seen}{ending}"},
    ]


def reminder(thinking: bool, score: int, moves_left: int | None) -> str:
    """The end of every turn's text. `score`: of 100."""
    left = "" if moves_left is None else f" You have {max(0, moves_left)} moves left."
    form = THINKING_FORMAT if thinking else PLAIN_FORMAT
    return f"\n\nScore: {score} of 100.{left} Always output: {form}, one action for an answer."
