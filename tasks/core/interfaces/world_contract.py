"""The contract of a world: what the pipeline takes for granted of each, as checks that `loopline contract NAME` runs.

They need no test runner, so that the author of a packaged world has them where the project is installed. For worlds of
this repository tests/core/worlds/test_contract.py runs them.
"""

import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Literal

import psutil

from tasks.core.config.descriptions import descriptions
from tasks.core.config.splits import SPLITS
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world import Demonstrating, Episode, Observation, Task, World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.records.files import digest

OTHER_SEED = 320
PLAYED = 4
"""Tasks of each split that are played."""
IDLE_TURNS = 6
MUCH_FOR_NOTHING = 0.3
HOSTILE = (
    "",
    " ",
    "\x00\x1b[2J\u202e\ufffe",
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    "<think>" * 5_000,
    "<answer>" * 5_000,
    "<think></think>" + "<answer>||</answer>" * 2_000,
    "<think></think><answer>" + "|" * 20_000 + "</answer>",
    "<answer>" + "Up || " * 5_000 + "</answer>",
    "<|im_end|>\n<|im_start|>assistant\n",
    "```" * 5_000,
    "```python\nraise SystemExit(3)\n```",
    "```python\n__import__('os').kill(__import__('os').getppid(), 9)\n```",
    "{" * 10_000,
    "%s%n{0.__class__}${jndi:x}",
    "a" * 100_000,
)


class Broken(AssertionError):  # noqa: N818
    """A rule of the contract that a world breaks; the message says by what."""


@dataclass(frozen=True)
class Case:
    """A world with some of its tasks, to be checked."""

    section: WorldSection
    folder: Path
    world: World
    played: Sequence[Task]


Check = Callable[[Case], None]


def findings_of(section: WorldSection) -> Iterator[tuple[Literal["ok", "broken", "note", "warning"], str]]:
    """Prepare the world; yield for each rule whether it is kept and what breaks it, and last what idleness earns."""
    with TemporaryDirectory(prefix="loopline-contract-") as scratch:
        folder = Path(scratch) / "world"
        prepare_world_folder(section, folder)
        with closing(open_world(section, folder)) as world:
            case = Case(section, folder, world, some_tasks(world))
            for check in CHECKS:
                if check is the_oracle_solves_every_task and not any(recited(world, task) for task in case.played):
                    yield "note", "no task has a solution, so the oracle solves none"
                    continue
                problem = _problem(check, case)
                yield ("broken", f"{rule_of(check)}: {problem}") if problem else ("ok", rule_of(check))
            earned = f"doing nothing earns {(idle := idle_return(case)):.2f} of 1"
            if idle < MUCH_FOR_NOTHING:
                yield "note", earned
            else:
                yield (
                    "warning",
                    f"{earned}, to which a policy is drawn; let checks that hold at the start count nothing",
                )


def _problem(check: Check, case: Case) -> str:
    try:
        check(case)
    except Exception as error:  # whatever an author's world raises
        return str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
    return ""


def rule_of(check: Check) -> str:
    """Return the rule that a check is called after."""
    return check.__name__.replace("_", " ")


def some_tasks(world: World, most: int = PLAYED) -> list[Task]:
    """Return some tasks of each split, from all over it."""
    parts = [world.tasks(split) for split in SPLITS]
    return [task for part in parts for task in part[:: max(1, len(part) // most)]]


def require(holds: object, said: object) -> None:
    """Raise Broken with this message unless the condition holds."""
    if not holds:
        raise Broken(str(said))


def recited(world: World, task: Task) -> list[str] | None:
    """Return the turns of a solution; None where the world has none to show."""
    if not isinstance(world, Demonstrating):
        return None
    try:
        return world.demonstration(task.task_id)
    except ValueError:
        return None


def turns_of(world: World, task: Task) -> list[str]:
    """Return the recited turns, or some that do little."""
    return recited(world, task) or ["<think>so</think><answer>Right || Down</answer>", "nonsense"]


def play(episode: Episode, turns: Sequence[str]) -> list[Observation]:
    """Play until the turns or the episode are over."""
    seen: list[Observation] = []
    for turn in turns:
        seen.append(episode.step(turn))
        if seen[-1].done:
            break
    return seen


def every_knob_says_what_it_means(case: Case) -> None:
    """The texts below the fields of its settings are the world's page and the comments in params.yaml."""
    settings = type(case.section.settings)
    silent = set(settings.model_fields) - set(descriptions(settings))
    require(not silent, f"no text below {', '.join(sorted(silent))} of {settings.__name__}")
    require(settings.__doc__, f"{settings.__name__} has no docstring, which says what splits and difficulties mean")


def tasks_have_ids_scenarios_and_difficulties(case: Case) -> None:
    """Four splits; ids of their own; as many tasks in a scenario as it says, all of one split; difficulties 1 to 3."""
    listed = [(split, task) for split in SPLITS for task in case.world.tasks(split)]
    for split, task in listed:
        require(task.split == split, f"{task.task_id} is listed in {split} and says {task.split}")
        require(task.difficulty in (1, 2, 3), f"{task.task_id} has the difficulty {task.difficulty}")
        require(task.instruction, f"{task.task_id} has no instruction")
    require(len({task.task_id for _, task in listed}) == len(listed), "two tasks have one id")
    require({split for split, _ in listed} == set(SPLITS), "a split is empty")
    scenarios: dict[str, list[str]] = {}
    for split, task in listed:
        scenarios.setdefault(task.scenario_id, []).append(split)
    for scenario, splits in scenarios.items():
        sizes = case.section.settings.scenario_sizes
        require(len(splits) in sizes, f"scenario {scenario} has {len(splits)} tasks, not {sizes} (scenario_sizes)")
        require(len(set(splits)) == 1, f"scenario {scenario} is in more than one split")


def unknown_splits_and_tasks_are_refused(case: Case) -> None:
    """ValueError for a split, KeyError for a task."""
    try:
        case.world.tasks("nowhere")  # type: ignore[arg-type]
    except ValueError as error:
        require("nowhere" in str(error), f"the message does not name the split: {error}")
    else:
        raise Broken("tasks('nowhere') raises no ValueError")
    try:
        case.world.open("nobody", 0)
    except KeyError:
        return
    raise Broken("open('nobody', 0) raises no KeyError")


def the_same_seed_prepares_the_same_bytes(case: Case) -> None:
    """And another seed others, unless each split has one task."""
    with TemporaryDirectory() as scratch:
        again, other = Path(scratch) / "again", Path(scratch) / "other"
        prepare_world_folder(case.section, again)
        require(digest(again) == digest(case.folder), "the same seed wrote other bytes")
        prepare_world_folder(case.section.model_copy(update={"seed": OTHER_SEED}), other)
        if any(len(case.world.tasks(split)) > 1 for split in SPLITS):  # else there is nothing to draw
            require(digest(other) != digest(case.folder), f"the seed {OTHER_SEED} wrote the same bytes")


def the_oracle_solves_every_task(case: Case) -> None:
    """In as many turns as it recites, the last of which ends the episode; a world may recite nothing."""
    for task in case.played:
        if (turns := recited(case.world, task)) is None:
            continue
        with closing(case.world.open(task.task_id, 1)) as episode:
            seen, verdict = play(episode, turns), episode.evaluate()
        require(verdict.success, f"{task.task_id}: its solution fails {', '.join(verdict.failed)}")
        ends = [observation.done for observation in seen]
        require(ends == [False] * (len(turns) - 1) + [True], f"{task.task_id}: its {len(turns)} turns end at {ends}")
        require(not any(one.failed for one in seen), f"{task.task_id}: a turn of its solution failed")
        require(0 < verdict.episode_return <= 1, f"{task.task_id}: its solution returns {verdict.episode_return}")


def doing_nothing_solves_nothing(case: Case) -> None:
    """Neither before the first turn nor after some empty ones."""
    for task in case.played:
        with closing(case.world.open(task.task_id, 1)) as episode:
            require(not episode.evaluate().success, f"{task.task_id} is solved before the first turn")
            play(episode, [""] * IDLE_TURNS)
            require(not episode.evaluate().success, f"{task.task_id} is solved by empty turns")


def idle_return(case: Case) -> float:
    """Return the mean return of empty turns: from `MUCH_FOR_NOTHING` on, policies learn to do nothing."""
    returns = []
    for task in case.played:
        with closing(case.world.open(task.task_id, 1)) as episode:
            play(episode, [""] * IDLE_TURNS)
            returns.append(episode.evaluate().episode_return)
    return fmean(returns)


def rewards_come_with_every_turn_or_with_none(case: Case) -> None:
    """And scores, where a world gives them, lie in [0, 1]."""
    given: set[bool] = set()
    for task in case.played:
        with closing(case.world.open(task.task_id, 2)) as episode:
            given |= {seen.reward is None for seen in play(episode, ["", *turns_of(case.world, task)])}
            score = episode.evaluate().score
        require(score is None or 0 <= score <= 1, f"{task.task_id}: the score {score}")
    require(len(given) == 1, "some turns have a reward and some have none")


def the_same_seed_and_turns_are_the_same_episode(case: Case) -> None:
    """Prompt, observations and verdict."""
    for task in case.played:
        found = []
        for _ in range(2):
            with closing(case.world.open(task.task_id, 5)) as episode:
                seen = play(episode, ["", *turns_of(case.world, task)])
                found.append((episode.prompt, seen, episode.evaluate()))
        require(found[0] == found[1], f"{task.task_id} went otherwise the second time")


def a_verdict_in_mid_episode_changes_nothing(case: Case) -> None:
    """Turn-level credit asks for one after every turn."""
    for task in case.played:
        turns, found = turns_of(case.world, task), []
        for asks in (False, True):
            with closing(case.world.open(task.task_id, 5)) as episode:
                seen: list[Observation] = []
                for turn in turns:
                    if seen and seen[-1].done:
                        break
                    seen.append(episode.step(turn))
                    if asks:
                        episode.evaluate()
                found.append((seen, episode.evaluate()))
        require(found[0] == found[1], f"{task.task_id} went otherwise when verdicts were asked for")


def episodes_do_not_see_each_other(case: Case) -> None:
    """Two episodes of each task, played in turn with all others, go as they do alone."""
    world, tasks = case.world, [task for task in case.played for _ in range(2)]
    alone = []
    for number, task in enumerate(tasks):
        with closing(world.open(task.task_id, number)) as episode:
            alone.append((play(episode, turns_of(world, task)), episode.evaluate()))
    episodes = [world.open(task.task_id, number) for number, task in enumerate(tasks)]
    together: list[list[Observation]] = [[] for _ in tasks]
    for turns in zip_longest(*(turns_of(world, task) for task in tasks)):
        for number, turn in enumerate(turns):
            if turn is not None and not (together[number] and together[number][-1].done):
                together[number].append(episodes[number].step(turn))
    found = [(seen, episode.evaluate()) for seen, episode in zip(together, episodes, strict=True)]
    for episode in episodes:
        episode.close()
    differing = [task.task_id for task, one, other in zip(tasks, alone, found, strict=True) if one != other]
    require(not differing, f"went otherwise beside others: {', '.join(differing)}")


def hostile_text_is_only_a_bad_turn(case: Case) -> None:
    """It raises nothing, solves nothing, and the next episode goes on."""
    task = case.world.tasks("train")[0]
    for text in HOSTILE:
        with closing(case.world.open(task.task_id, 3)) as episode:
            seen = episode.step(text)
            require(isinstance(seen.text, str) and len(seen.text) < 1_000_000, f"a long answer to {text[:40]!r}")
            require(not episode.evaluate().success, f"solved by {text[:40]!r}")
    with closing(case.world.open(task.task_id, 3)) as episode:
        require(play(episode, turns_of(case.world, task)), "no episode afterwards")


def closing_twice_is_closing(case: Case) -> None:
    """An episode may be closed again; `close_leaves_nothing` does so with a world."""
    episode = case.world.open(case.world.tasks("dev")[0].task_id, 0)
    episode.step("")
    episode.close()
    episode.close()


def close_leaves_nothing(case: Case) -> None:
    """No process, thread, open file, or half-written file."""
    open_world(case.section, case.folder).close()
    before = _left()
    opened = open_world(case.section, case.folder)
    episodes = [opened.open(task.task_id, 0) for task in opened.tasks("dev")[:3]]
    for episode in episodes[:2]:
        episode.step("")
        episode.close()
    opened.close()
    opened.close()
    del episodes, episode, opened
    after = _left()
    require(after[0] <= before[0], f"processes are left: {sorted(after[0] - before[0])}")
    require(after[1] <= before[1], f"{after[1] - before[1]} threads are left")
    require(after[2] <= before[2], f"{after[2] - before[2]} files are left open")
    halves = [entry.name for entry in os.scandir(case.folder.parent) if entry.name.endswith(".tmp")]
    require(not halves, f"half-written files are left: {halves}")


def _left() -> tuple[set[int], int, int]:
    gc.collect()
    own = psutil.Process()
    return {child.pid for child in own.children(recursive=True)}, threading.active_count(), own.num_fds()


CHECKS: tuple[Check, ...] = (
    every_knob_says_what_it_means,
    tasks_have_ids_scenarios_and_difficulties,
    unknown_splits_and_tasks_are_refused,
    the_same_seed_prepares_the_same_bytes,
    the_oracle_solves_every_task,
    doing_nothing_solves_nothing,
    rewards_come_with_every_turn_or_with_none,
    the_same_seed_and_turns_are_the_same_episode,
    a_verdict_in_mid_episode_changes_nothing,
    episodes_do_not_see_each_other,
    hostile_text_is_only_a_bad_turn,
    closing_twice_is_closing,
    close_leaves_nothing,
)
