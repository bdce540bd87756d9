"""Tasks, episodes and the world of key_value. `KeyValueConfig` says what splits and difficulties mean."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from loopline_key_value.settings import KeyValueConfig
from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import Evaluation, Message, Observation, Task
from tasks.core.seeding import derive_seed
from tasks.core.text_games.task_files import GameTask, read_tasks, task_names, write_tasks

COLOURS = ("red", "blue", "green", "white", "black", "brown", "pink", "grey")
ANIMALS = ("cat", "dog", "hen", "cow", "fox", "owl", "bee", "ant")
RULES = "You keep a store. Write one command in a turn: set KEY VALUE, delete KEY, get KEY, or done at the end."


class StoreTask(GameTask):
    """A store, and the changes that are asked for; None: the entry is to be gone."""

    store: dict[str, str]
    changes: dict[str, str | None]

    @property
    def instruction(self) -> str:
        wanted = [f"{key} is gone" if value is None else f"{key} is {value}" for key, value in self.changes.items()]
        return f"See to it that {' and '.join(wanted)}."

    @property
    def goal(self) -> dict[str, str]:
        """The store as it should be at the end, side effects ruled out."""
        after = {**self.store, **self.changes}
        return {key: value for key, value in after.items() if value is not None}


class StoreEpisode:
    """An `Episode` (see `tasks.core.interfaces.world`)."""

    def __init__(self, task: StoreTask, max_turns: int) -> None:
        self._task, self._max_turns = task, max_turns
        self._store, self._turns, self._over = dict(task.store), 0, False
        held = ", ".join(f"{key} is {value}" for key, value in task.store.items())
        self.prompt: list[Message] = [
            {"role": "system", "content": RULES},
            {"role": "user", "content": f"In the store {held}. {task.instruction}"},
        ]

    def step(self, text: str) -> Observation:
        """Do one command. A turn without one is a bad turn."""
        self._turns += 1
        answer, call = self._done(text.split())
        self._over = self._over or self._turns >= self._max_turns
        calls = (f"store.{call}",) if call else ()
        return Observation(answer, done=self._over, failed=not call, api_calls=calls)

    def evaluate(self) -> Evaluation:
        """Check each entry that was to change, and that all did and no other: so doing nothing earns nothing."""
        goal, tests = self._task.goal, {}
        for key in self._task.changes:
            tests[f"{key} is as asked for"] = self._store.get(key) == goal.get(key)
        tests["these have changed and no other"] = self._store == goal
        passed = tuple(name for name, holds in tests.items() if holds)
        return Evaluation(passed, tuple(name for name in tests if name not in passed))

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _done(self, words: Sequence[str]) -> tuple[str, str]:
        """Return the answer to a command and its name, "" where it is none."""
        match words:
            case ["set", key, value]:
                self._store[key] = value
                return f"{key} is {value}.", "set"
            case ["delete", key]:
                self._store.pop(key, None)
                return f"{key} is gone.", "delete"
            case ["get", key]:
                return f"{key} is {self._store[key]}." if key in self._store else f"There is no {key}.", "get"
            case ["done"]:
                self._over = True
                return "Good bye.", "done"
        return "That is no command.", ""


class KeyValueWorld:
    """A `World` and `Demonstrating` (see `tasks.core.interfaces.world`)."""

    def __init__(self, tasks: Mapping[Split, Sequence[StoreTask]], max_turns: int) -> None:
        self._max_turns = max_turns
        self._by_id = {task.task_id: task for part in tasks.values() for task in part}
        self._tasks = {split: tuple(map(_listed, part)) for split, part in tasks.items()}

    def tasks(self, split: Split) -> Sequence[Task]:
        if split not in self._tasks:
            raise ValueError(f"unknown split {split!r}; there are {', '.join(self._tasks)}")
        return self._tasks[split]

    def open(self, task_id: str, seed: int) -> StoreEpisode:
        return StoreEpisode(self._by_id[task_id], self._max_turns)

    def demonstration(self, task_id: str) -> list[str]:
        changes = self._by_id[task_id].changes.items()
        return [*(f"delete {key}" if value is None else f"set {key} {value}" for key, value in changes), "done"]

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


def write_key_value(settings: KeyValueConfig, seed: int, folder: Path) -> None:
    """Draw the tasks of all splits and write them."""
    write_tasks(folder, {split: _split(settings, seed, split) for split in SPLITS})


def open_key_value(settings: KeyValueConfig, code_blocks: CodeBlocks, folder: Path) -> KeyValueWorld:
    """Open the tasks in `folder`. Raises ArtifactError naming file, line and rule."""
    return KeyValueWorld(read_tasks(folder, StoreTask), settings.max_turns)


def _split(settings: KeyValueConfig, seed: int, split: Split) -> list[StoreTask]:
    random = Random(derive_seed(seed, "key_value", split))
    names = ANIMALS if split == "test_challenge" else COLOURS
    tasks: list[StoreTask] = []
    while len(tasks) < settings.counts.by_split[split]:
        store = {key: str(random.randint(10, 99)) for key in random.sample(names, settings.entries)}
        for difficulty in (1, 2, 3):
            ids = task_names(split, len(tasks))
            changes = {key: _change(random) for key in random.sample(sorted(store), difficulty)}
            tasks.append(StoreTask(**ids, difficulty=difficulty, split=split, store=store, changes=changes))
    return tasks


def _change(random: Random) -> str | None:
    return None if random.random() < 0.3 else str(random.randint(100, 999))


def _listed(task: StoreTask) -> Task:
    return Task(task.task_id, task.scenario_id, task.difficulty, task.split, task.instruction)
