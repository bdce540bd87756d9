"""Plain turns, played in processes that episodes share one after another, against processes of an episode's own."""

import json
import random

import pytest

from tasks.core.interfaces.world import ExecutionTimeout, Task, WorldFault
from tasks.core.worlds.bfcl.export import examine
from tasks.core.worlds.bfcl.player import Played
from tasks.core.worlds.bfcl.pool import BfclPool
from tasks.core.worlds.bfcl.world import BfclWorld
from tests.core.worlds.bfcl.recorded_episodes import erring

pytestmark = pytest.mark.bfcl

NOT_PLAIN = "[echo(content=1 + 1)]"
LOGIN = (
    "[authenticate_travel(client_id='a', client_secret='b', refresh_token='c', grant_type='read_write', "
    "user_first_name='A', user_last_name='B')]"
)
ASKING = "[get_credit_card_balance(access_token='TOKEN', card_id='1234567812345678')]"
CHARGING = (
    "[purchase_insurance(access_token='TOKEN', insurance_type='a', insurance_cost=9.5, booking_id='booking_901', "
    "card_id='1234567812345678')]"
)


def played(pool: BfclPool, task_id: str, texts: list[str]) -> list[Played]:
    player = pool.player(task_id)
    results = [player.play(text) for text in texts]
    player.close()
    return results


def test_shared_players_answer_as_players_of_ones_own(pool: BfclPool, world: BfclWorld, tasks: list[Task]) -> None:
    chosen = random.Random(0).sample(tasks, 200)
    said = {task.task_id: erring(world.demonstration(task.task_id), random.Random(task.task_id)) for task in chosen}
    own = {task_id: played(pool, task_id, [NOT_PLAIN, *texts])[1:] for task_id, texts in said.items()}
    at_once = {task_id: pool.player(task_id) for task_id in list(said)[:20]}
    for task_id, texts in said.items():
        assert played(pool, task_id, texts) == own[task_id]
    for task_id, player in at_once.items():
        assert [player.play(text) for text in said[task_id]] == own[task_id]
        player.close()


@pytest.mark.parametrize(
    "call",
    [
        "echo(content=1 + 1)",
        "ls(a=not 1)",
        "(lambda: 7)()",
        "print(a=1)",
        "re.escape(pattern='a')",
        "method_name(a=1)",
        "player_multi_turn_base_0_GorillaFileSystem_instance.root.contents.clear()",
        "player_multi_turn_base_0_GorillaFileSystem_instance._load_scenario(scenario={})",
        "player_x.ls()",
        "echo(content={\"a' if 1 else 'b\": 1})",
        "echo(content={'().__class__': {'a': 1}})",
        "unknown(a=(1, -2), b={3}, c={'d': None})",
        "ls(" * 60 + ")" * 60,
        "ls(1, *(2,), **{'a': 3})",
        "echo(a=1, a=2)",
        "9" * 5000 + "()",
    ],
)
def test_python_is_played_as_python_after_the_turns_before(pool: BfclPool, call: str) -> None:
    texts = ["[mkdir(dir_name='before')]", f"[touch(file_name='beside'), {call}]", "[ls(), pwd()]"]
    assert played(pool, "multi_turn_base_0", texts) == played(pool, "multi_turn_base_0", [NOT_PLAIN, *texts])[1:]


def test_turns_of_before_are_kept(pool: BfclPool) -> None:
    *_, shown = played(pool, "multi_turn_base_0", ["[mkdir(dir_name='before')]", NOT_PLAIN, "[ls()]"])
    assert "before" in shown.results[0]


def test_cards_that_an_episode_charges_are_whole_in_the_next(pool: BfclPool) -> None:
    """The package lays the same cards, not copies of them, into the states of all tasks with long contexts."""
    said = {}
    for task_id in ("multi_turn_long_context_150", "multi_turn_long_context_151"):
        player = pool.player(task_id)
        token = json.loads(player.play(LOGIN).results[0])["access_token"]
        charging, asking = (text.replace("TOKEN", token) for text in (CHARGING, ASKING))
        balances = [player.play(text).results[-1] for text in (asking, charging, asking)]
        player.close()
        assert (balances[0], balances[2]) == ('{"card_balance": 5000.0}', '{"card_balance": 4990.5}')
        said[task_id] = [LOGIN, asking, charging, asking]
    for one in examine(pool, said).values():
        shown = [message["content"] for message in one.messages if message["content"].startswith("[{'role': 'tool'")]
        assert "5000.0" in shown[1] and "4990.5" in shown[3]


def test_a_turn_without_end_ends_its_own_episode(pool: BfclPool, tasks: list[Task]) -> None:
    task_id = next(task.task_id for task in tasks if "MathAPI" in pool.task(task.task_id)["player"]["classes"])
    other = pool.player(task_id)
    with pytest.raises(ExecutionTimeout):
        played(pool, task_id, ["[power(base=9, exponent=999999999)]"])
    for player in (other, pool.player(task_id)):
        assert player.play("[power(base=2, exponent=5)]").results == ['{"result": 32}']
        player.close()


def test_a_player_that_was_closed_plays_no_more(pool: BfclPool) -> None:
    for texts in ([], ["[ls()]"], [NOT_PLAIN]):
        player = pool.player("multi_turn_base_0")
        for text in texts:
            player.play(text)
        player.close()
        player.close()
        with pytest.raises(WorldFault):
            player.play("[ls()]")
