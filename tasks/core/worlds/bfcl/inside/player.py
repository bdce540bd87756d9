"""A player: an episode's state, with the package's own decoder and executor. Both evaluate what agents write.

In: {"open": {"id", "classes", "config", "long_context"}}, then {"turn": n, "text": str}. Out: {"played": n, "calls":
[str], "results": [str]}; no calls if the text has none that can be decoded.

A plain player serves one episode after another, because it evaluates nothing. It answers {"not plain": n} to a turn
that is more than plain calls, or that runs out of stack or memory; the episode then needs its own player.
"""

import builtins
import re
from typing import Any, NoReturn

from tasks.core.confinement.inside import frames
from tasks.core.confinement.inside.channel import Channel
from tasks.core.worlds.bfcl.inside.package import LongContexts, forget_instances
from tasks.core.worlds.bfcl.inside.plain_calls import NotPlain, PlainCalls, not_defined

Errors = tuple[type[BaseException], ...]

NAME = "player"
"""The model's name, as the package knows it."""
_ROUNDS = 4
_WARM_UP = (
    "[pwd(), ls(a=True), cd(folder='document'), mkdir(dir_name='a'), cat(file_name='b'), mean(numbers=[1, 2.5, -3])]",
    "[displayCarStatus(option='fuel'), lockDoors(unlock=False, door=['driver']), startEngine(ignitionMode='START')]",
    "[get_stock_info(symbol='NVDA'), get_watchlist(), place_order(order_type='Buy', symbol='A', price=1.5, amount=2)]",
    "[list_all_airports(), get_flight_cost(travel_from='A', travel_to='B', travel_date='C', travel_class='D')]",
    "[post_tweet(content='a', tags=['#b'], mentions=[]), send_message(receiver_id='USR001', message='a'), nothing()]",
    "[create_ticket(title='a', description='b', priority=2), ticket_login(username='a', password='b')]",
    "That is done.",
    "",
)
_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,16}\b")
_NO_REASON = "Error during execution: "
"""A result with an empty error message: usually memory ran out."""


def serve_player(channel: Channel, result_chars: int, plain: bool) -> NoReturn:
    """Play incoming turns until the channel closes. Keeps `result_chars` characters of each result."""
    unsure: Errors = evaluate_plainly() if plain else ()
    long_contexts = LongContexts()
    task: dict[str, Any] = {}
    while True:
        request = channel.receive()
        if "open" in request:
            task = request["open"]
            forget_instances(NAME)
            if task["long_context"]:
                long_contexts.restore()
            _execute(task, [])
        else:
            channel.send(_answer(task, request, result_chars, unsure))


def evaluate_plainly() -> Errors:
    """Make the package's decoder and executor refuse everything except plain calls.

    Returns the errors after which another process, with more stack or memory, must play the turn.
    """
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
    from bfcl_eval.model_handler import utils

    globals_of = vars(multi_turn_utils)
    locals_of = multi_turn_utils.execute_multi_turn_func_call.__code__.co_varnames

    def instance(name: str) -> Any:
        if name in globals_of and name.startswith(f"{NAME}_"):
            return globals_of[name]
        raise undefined(name)

    def undefined(name: str) -> BaseException:
        known = name in globals_of or name in locals_of or hasattr(builtins, name)
        return NotPlain(name) if known else not_defined(name)

    def evaluate(expression: str) -> Any:
        try:
            return calls.evaluate(expression)
        except (RecursionError, MemoryError) as error:  # the package would show these as a result
            raise NotPlain from error

    def refuse(expression: str) -> NoReturn:
        raise NotPlain(expression)

    calls = PlainCalls(instance, undefined)
    multi_turn_utils.eval = evaluate  # replaces the built-in function
    utils.eval = refuse
    return NotPlain, RecursionError, MemoryError


def warm_up(classes: list[str]) -> None:
    """Play a little in the zygote: CPython specialises code after a few runs, and in a fork that would copy pages."""
    for _ in range(_ROUNDS):
        task = {"id": "warm", "classes": classes, "config": {}, "long_context": False}
        for text in _WARM_UP:
            calls, results = _play(task, text)
            frames.encode(
                {"calls": [_clean(call) for call in calls], "results": [_shown(result, 99) for result in results]}
            )
    forget_instances(NAME)


def _answer(task: dict[str, Any], request: dict[str, Any], result_chars: int, unsure: Errors) -> dict[str, Any]:
    try:
        calls, results = _play(task, request["text"], unsure)
    except unsure:
        return {"not plain": request["turn"]}
    if unsure and _NO_REASON in results:
        return {"not plain": request["turn"]}
    shown = [_shown(result, result_chars) for result in results]
    return {"played": request["turn"], "calls": [_clean(call) for call in calls], "results": shown}


def _play(task: dict[str, Any], text: str, unsure: Errors = ()) -> tuple[list[str], list[str]]:
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import is_empty_execute_response
    from bfcl_eval.model_handler.utils import default_decode_execute_prompting

    try:
        calls = default_decode_execute_prompting(text)
    except unsure:
        raise
    except BaseException:  # decoding evaluates parts of the text, which may raise anything
        return [], []
    if is_empty_execute_response(calls):
        return [], []
    return calls, _execute(task, calls)


def _execute(task: dict[str, Any], calls: list[str]) -> list[str]:
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

    results, _ = execute_multi_turn_func_call(
        calls, task["config"], task["classes"], NAME, task["id"], long_context=task["long_context"]
    )
    return list(results)


def _shown(result: str, most_chars: int) -> str:
    """Return the result shortened, and without addresses, which differ between runs and mean nothing to the agent."""
    dropped = len(result) - most_chars
    note = f"... ({dropped} more characters)" if dropped > 0 else ""
    return _clean(_ADDRESS.sub(" at 0x0", result[:most_chars])) + note


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
