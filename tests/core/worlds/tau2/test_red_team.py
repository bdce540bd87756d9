"""Calls that want more than the tools: databases, assertions, other tasks, private methods, endless work."""

import pytest

from tasks.core.interfaces.world import ExecutionTimeout
from tasks.core.tool_calls import call_text
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.world import Tau2World
from tests.core.worlds.tau2.recited import LINE, one_each, play, solution_of

pytestmark = pytest.mark.tau2

PRIVATE = (
    "_toggle_data", "_set_bill_to_paid", "_get_line_by_phone", "_apply_one_time_charge", "_check_sim_status",
    "_set_apn_settings", "_grant_app_permission", "_can_send_mms", "simulate_network_search", "turn_data_on",
    "turn_airplane_mode_off", "turn_roaming_on", "set_data_usage", "set_user_location", "set_user_info",
    "set_wifi_calling", "unseat_sim_card", "lock_sim_card", "break_vpn", "break_apn_settings",
    "remove_app_permission", "suspend_line_for_overdue_bill", "get_available_plan_ids", "assert_can_send_mms",
    "assert_service_status", "assert_mobile_data_status", "assert_data_refueling_amount", "assert_no_overdue_bill",
    "update_db", "get_db_hash", "use_tool", "get_tools", "tools", "db", "device", "surroundings", "__class__",
    "__init__", "__dict__", "run_env_assertion", "set_state", "make_tool_call", "sync_tools", "set_solo_mode",
)  # fmt: skip
"""Names of the tool kits and the environment that are no tools."""
SMUGGLED = {
    "another tool": ("check_sim_status", {"tool_name": "turn_data_on"}),
    "the user's side": ("check_sim_status", {"requestor": "user"}),
    "the object": ("check_sim_status", {"self": {}}),
    "a dotted name": ("user_tools.turn_data_on", {}),
    "a path": ("get_details_by_id", {"id": "/etc/passwd"}),
    "a format": ("get_details_by_id", {"id": "B{0.__class__.__init__.__globals__}%s%n"}),
    "a dunder": ("grant_app_permission", {"app_name": "messaging", "permission": "__class__"}),
    "a method": ("grant_app_permission", {"app_name": "messaging", "permission": "model_dump"}),
    "an app of dunder": ("check_app_status", {"app_name": "__class__"}),
    "settings of another type": ("set_apn_settings", {"apn_settings": {"apn_name": "internet", "__class__": "x"}}),
    "a list for a key": ("check_app_permissions", {"app_name": ["messaging"]}),
    "an endless amount": ("refuel_data", {**LINE, "gb_amount": 10**400}),
    "a negative amount": ("refuel_data", {**LINE, "gb_amount": -2.0}),
    "a huge limit": ("get_bills_for_customer", {"customer_id": "C1001", "limit": 10**30}),
    "code": ("get_customer_by_name", {"full_name": "__import__('os').system('id')", "dob": "eval(1)"}),
    "a long string": ("get_customer_by_name", {"full_name": "x" * 99_000, "dob": ""}),
}


@pytest.fixture(scope="module")
def unsolved(pool: Tau2Pool, world: Tau2World) -> str:
    """A task that no single private call should solve: mobile data is off."""
    return next(
        task.task_id for task in world.tasks("train") if task.task_id.startswith("[mobile_data_issue]data_mode")
    )


def test_only_tools_are_called(pool: Tau2Pool, world: Tau2World, unsolved: str) -> None:
    names = {schema["function"]["name"] for schema in pool.task(unsolved)["tools"]}
    assert not names & set(PRIVATE) and len(PRIVATE) + len(SMUGGLED) >= 50
    for name in PRIVATE:
        seen, verdict = play(world, unsolved, one_each([(name, {})]))
        assert seen[0].text == f"Error: Tool '{name}' not found." and seen[0].failed and not seen[0].api_calls
        assert not verdict.success


@pytest.mark.parametrize("name", SMUGGLED)
def test_arguments_reach_nothing(pool: Tau2Pool, world: Tau2World, unsolved: str, name: str) -> None:
    seen, verdict = play(world, unsolved, one_each([SMUGGLED[name]]))
    assert not verdict.success
    for word in ("root:", "uid=", "assert_", "<bound method", " object at 0x", "evaluation_criteria", "Traceback"):
        assert word not in seen[0].text


def test_settings_of_a_wrong_type_are_refused_and_change_nothing(
    pool: Tau2Pool, world: Tau2World, unsolved: str
) -> None:
    for wrong in ("internet", 5, {"apn_name": "nowhere"}, {"apn_name": "internet", "more": 1}):
        calls = [("set_apn_settings", {"apn_settings": wrong}), *solution_of(pool, unsolved)]
        seen, verdict = play(world, unsolved, one_each(calls))
        assert seen[0].failed and seen[0].failed_api_calls and verdict.success


def test_a_player_can_open_nothing_and_ends_alone(world: Tau2World, unsolved: str) -> None:
    episode, other = world.open(unsolved, 0), world.open(unsolved, 0)
    assert episode._player._process.confinement in ("seccomp", "audit")
    episode._player._process.link.send_frame(b"\xff\xff\xff\xff")  # a frame that never comes
    episode._player._limits = type(episode._player._limits)(wall_seconds_per_turn=0.5)
    with pytest.raises(ExecutionTimeout):
        episode.step(call_text([("check_sim_status", {})], "json"))
    assert other.step(call_text([("check_sim_status", {})], "json")).text == "Your SIM card is active and working."
    episode.close()
    other.close()


def test_an_episode_shows_nothing_of_its_assertions(pool: Tau2Pool, world: Tau2World, unsolved: str) -> None:
    looks = [("check_network_status", {}), ("get_details_by_id", {"id": "C1001"}), ("can_send_mms", {})]
    shown = "\n".join(observation.text for observation in play(world, unsolved, one_each(looks))[0])
    opening = "\n".join(message["content"] for message in world.open(unsolved, 0).prompt)
    for word in ("assert", "data_mode_off", "PERSONA", "expected_status"):
        assert word not in shown and word not in opening
