"""The prompt for a model that never saw pocketworld."""

import random
import re

from tasks.core.worlds.pocketworld.apps import APPS
from tasks.core.worlds.pocketworld.demonstrations import TrustedRepl
from tasks.core.worlds.pocketworld.episode import PocketEpisode
from tasks.core.worlds.pocketworld.full_prompt import _example, full_opening
from tasks.core.worlds.pocketworld.problem import build_problem


def test_the_prompt_has_the_docs_of_the_tasks_apps_and_an_example_of_another(all_specs):
    for spec in random.Random(0).sample(all_specs, 60):
        problem = build_problem(spec)
        prompt = PocketEpisode(problem, TrustedRepl(), full=True).prompt
        asked, example = prompt[-1]["content"], prompt[1]["content"]
        assert asked.endswith(f"Task: {problem.instruction}")
        for app in problem.apps:
            assert "\n".join(problem.releases[app].docs().values()) in asked
            assert f"Docs of {app}:" not in example
        assert [message["role"] for message in prompt[1:]] == ["user", "assistant"] * 2 + ["user"]


def test_the_worked_example_solves_its_task_and_says_what_the_world_says(all_specs, play):
    for app in APPS:
        other = next(problem for spec in all_specs if app not in (problem := build_problem(spec)).apps)
        prompt = full_opening(other, "Execution successful.")
        shown = re.search(r"Docs of (\w+)", prompt[1]["content"])
        episode = PocketEpisode(_example(shown.group(1)), TrustedRepl())
        observed = episode.step(prompt[2]["content"])
        assert (observed.text, observed.failed) == (prompt[3]["content"], False)
        episode.step(prompt[4]["content"])
        assert episode.evaluate().success
