"""What LOOP gained on τ²-bench's official test: pass^k, baselines, and whether the policy looks before it acts.

Reads finished runs of the profile `tau2`, each in its own clone, of one training seed each:

    loopline configure tau2 --set seed=1 && loopline run

python tests/benchmarks/tau2_gains.py CLONE [CLONE ...] [--name NAME]
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import comb
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pyarrow.parquet as pq
from result_file import write_result

from tasks.core.evaluation.differences import CONFIDENCE, PairedTest, method_test, paired_test
from tasks.core.interfaces.world import Task
from tasks.core.records.layout import Layout
from tasks.core.tool_calls import call_text
from tasks.core.worlds.tau2.demonstrations.playing import PERFECT, Demonstrator
from tasks.core.worlds.tau2.demonstrations.rules import HAND_OVER, LINE, MMS, MOBILE_DATA, SERVICE, Calls, plain
from tasks.core.worlds.tau2.kind import Tau2Config
from tasks.core.worlds.tau2.tasks import kind
from tasks.core.worlds.tau2.world import Tau2World, open_tau2

SPLITS = ("test_normal", "test_challenge")
TRANSFER = HAND_OVER[0][0]
CHECKS = {
    call: look.check[0][0]
    for procedure in (SERVICE, MOBILE_DATA, MMS)
    for look in procedure.looks
    for sign in look.signs
    for call, _ in sign.helps
    if call != "reboot_device"
} | {"send_payment_request": "get_bills_for_customer", "resume_line": "get_details_by_id"}
"""The check that shows whether a change is called for, by the change's call."""
FIXES: Calls = (
    *plain("reseat_sim_card", "reset_apn_settings", "reboot_device"),
    ("set_network_mode_preference", {"mode": "4g_5g_preferred"}),
    *plain("disconnect_vpn"),
    *(("grant_app_permission", {"app_name": "messaging", "permission": name}) for name in ("storage", "sms")),
    ("enable_roaming", LINE),
    ("refuel_data", {**LINE, "gb_amount": 2.0}),
)
TOGGLES = plain(*(f"toggle_{name}" for name in ("airplane_mode", "data", "roaming", "data_saver_mode", "wifi_calling")))
BLIND: Mapping[str, Calls] = {
    "done at once": (),
    "hand over at once": HAND_OVER,
    "every fix but toggles": FIXES,
    "every fix": (*FIXES, *TOGGLES),
}

Row = dict[str, Any]


def rows_of(run: Path, split: str, policy: str) -> list[Row]:
    columns = ["policy", "task_id", "scenario_id", "success", "turns"]
    rows: list[Row] = pq.read_table(Layout(run).score_rollouts(split), columns=columns).to_pylist()
    return [row for row in rows if row["policy"] == policy]


def pass_hat(rows: Sequence[Row], k: int) -> float:
    """Return pass^k in percent: the chance that k runs of a task, drawn from those that were made, all succeed."""
    runs: defaultdict[str, list[bool]] = defaultdict(list)
    for row in rows:
        runs[row["task_id"]].append(row["success"])
    return 100 * fmean(comb(sum(made), k) / comb(len(made), k) for made in runs.values())


def means(rows: Sequence[Row]) -> dict[tuple[str, ...], float]:
    runs: defaultdict[tuple[str, ...], list[bool]] = defaultdict(list)
    for row in rows:
        runs[row["scenario_id"], row["task_id"]].append(row["success"])
    return {key: fmean(made) for key, made in runs.items()}


def behaviour(rows: Sequence[Row], needed: Mapping[str, set[str]]) -> dict[str, float]:
    """Return shares and means per episode. A change is needless if the official solution has none of its name."""
    calls = [[call.partition(".")[2] for turn in row["turns"] for call in turn["api_calls"]] for row in rows]
    changes = [(row, made, place) for row, made in zip(rows, calls, strict=True) for place in _changes(made)]
    looked = sum(CHECKS[made[place]] in made[:place] for _, made, place in changes)
    needless = sum(made[place] not in needed[row["task_id"]] for row, made, place in changes)
    handed = [(TRANSFER in made, TRANSFER in needed[row["task_id"]]) for row, made in zip(rows, calls, strict=True)]
    return {
        "calls": fmean(map(len, calls)),
        "changes": len(changes) / len(rows),
        "changes_after_a_look": looked / max(1, len(changes)),
        "needless_changes": needless / len(rows),
        "right_hand_overs": sum(did and should for did, should in handed) / max(1, sum(should for _, should in handed)),
        "wrong_hand_overs": sum(did and not should for did, should in handed) / len(rows),
        "failed_without_hand_over": fmean(
            not row["success"] and not did for row, (did, _) in zip(rows, handed, strict=True)
        ),
    }


def _changes(calls: Sequence[str]) -> list[int]:
    return [place for place, call in enumerate(calls) if call in CHECKS]


def baselines(world: Tau2World, split: str) -> dict[str, float]:
    """Return the pass^1 of agents that act blindly, and of the rules that look before they act."""
    tasks = world.tasks(split)  # type: ignore[arg-type]
    found = {name: 100 * fmean(_recited(world, task, calls) for task in tasks) for name, calls in BLIND.items()}
    return found | {"the rules, which look first": 100 * fmean(_by_rules(world, task) for task in tasks)}


def _recited(world: Tau2World, task: Task, calls: Calls) -> bool:
    episode = world.open(task.task_id, 0)
    for call in (*calls, *plain("done")):
        episode.step(call_text([call], "json"))
    success = episode.evaluate().success
    episode.close()
    return success


def _by_rules(world: Tau2World, task: Task) -> bool:
    episode = world.open(task.task_id, 0)
    Demonstrator(episode, task.instruction, PERFECT, Random(0)).play()
    success = episode.evaluate().success
    episode.close()
    return success


def of_split(runs: Sequence[Path], split: str, world: Tau2World) -> dict[str, Any]:
    rows = {policy: [rows_of(run, split, policy) for run in runs] for policy in ("base", "selected")}
    ids = {row["task_id"] for row in rows["base"][0]}
    needed = {task_id: {call["name"] for call in world.pool.solution(task_id).calls} for task_id in ids}
    number = min(4, len(rows["base"][0]) // len(ids))
    found: dict[str, Any] = {"tasks": len(ids), "runs_a_task": len(rows["base"][0]) // len(ids)}
    for policy, by_seed in rows.items():
        found[policy] = {
            **{f"pass^{k}": _rounded([pass_hat(seed, k) for seed in by_seed]) for k in range(1, number + 1)},
            "by_kind": _by_kind([row for seed in by_seed for row in seed]),
            "behaviour": _rounded(behaviour([row for seed in by_seed for row in seed], needed)),
        }
    each = [paired_test(means(b), means(s), CONFIDENCE) for b, s in zip(rows["base"], rows["selected"], strict=True)]
    all_seeds = method_test(
        *({seed: means(made) for seed, made in enumerate(rows[policy])} for policy in ("base", "selected")), CONFIDENCE
    )
    found["gain_of_each_seed"] = [_tested(test) for test in each]
    found["gain"] = _tested(all_seeds)
    found["baselines"] = _rounded(baselines(world, split))
    return found


def _by_kind(rows: Sequence[Row]) -> dict[str, float]:
    kinds: defaultdict[str, list[bool]] = defaultdict(list)
    for row in rows:
        kinds[kind(row["task_id"])].append(row["success"])
    return {name: round(100 * fmean(made), 1) for name, made in sorted(kinds.items())}


def _tested(test: PairedTest | None) -> list[float | None]:
    assert test is not None
    figures = (test.difference, test.low, test.high)
    return [None if figure is None else round(figure, 1) for figure in figures]


def _rounded(figures: Any) -> Any:
    if isinstance(figures, dict):
        return {name: _rounded(value) for name, value in figures.items()}
    return [_rounded(figure) for figure in figures] if isinstance(figures, list) else round(figures, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--name", default="tau2_gains", help="of the result file")
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=SPLITS)
    arguments = parser.parse_args()
    world = open_tau2(Tau2Config(prompt="ticket"), "first", Layout(arguments.runs[0]).world)
    try:
        write_result(arguments.name, {split: of_split(arguments.runs, split, world) for split in arguments.splits})
    finally:
        world.close()


if __name__ == "__main__":
    main()
