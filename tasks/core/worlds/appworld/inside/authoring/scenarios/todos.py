"""Templates of Todoist, one of them with Simple Note."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import CannotDraw, Draw, Rows, Scenario, phrased
from ..words import TODOS, pool
from ..world import World


class TodoComplete(Scenario):
    """Complete all open tasks of one priority in a project."""

    DIFFICULTY = 2
    APPS = ("todoist",)
    VARIANTS = ({"priority": "high"}, {"priority": "medium"}, {"priority": "low"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, priority: str) -> Draw:
        project = rng.choice(sorted(world.todos[person.id]))
        todos = [one for one in world.todos[person.id][project] if one.priority == priority and not one.completed]
        instruction = phrased(
            rng,
            f'Mark all {priority} priority tasks in my Todoist project "{project}" as completed.',
            f'Complete every {priority} priority task of the project "{project}" in Todoist.',
        )
        rows = [
            {"title": one.title, "project.name": project, "project.user.email": person.email, "is_completed": True}
            for one in todos
        ]
        expect = {"todoist.Task": Rows(updated=rows, fields=["is_completed"])}
        return Draw(instruction, {"project": project, "priority": priority}, expect=expect)

    @staticmethod
    def solution(apis: Any, todoist_token: str, project: str, priority: str) -> None:
        # I look for the project.
        found = all_pages(apis.todoist.show_projects, access_token=todoist_token)
        number = next(x["project_id"] for x in found if x["name"] == project)
        print(number)
        # I list its tasks.
        found = apis.todoist.show_tasks(access_token=todoist_token, project_id=number)["no_section_tasks"]
        print(len(found))
        # I complete the right ones.
        for x in found:
            if x["priority"] == priority and not x["is_completed"]:
                apis.todoist.update_task(access_token=todoist_token, task_id=x["task_id"], is_completed=True)
        # All is done.
        apis.supervisor.complete_task()


class TodoDeleteCompleted(Scenario):
    """Delete all completed tasks of a project."""

    DIFFICULTY = 2
    APPS = ("todoist",)

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        project = rng.choice(sorted(world.todos[person.id]))
        titles = [one.title for one in world.todos[person.id][project] if one.completed]
        instruction = phrased(
            rng,
            f'Delete all completed tasks from my Todoist project "{project}".',
            f'Clear the project "{project}" in Todoist of every task that is completed.',
        )
        expect = {"todoist.Task": Rows(removed=[{"title": title} for title in titles])}
        return Draw(instruction, {"project": project}, expect=expect)

    @staticmethod
    def solution(apis: Any, todoist_token: str, project: str) -> None:
        # I look for the project.
        found = all_pages(apis.todoist.show_projects, access_token=todoist_token)
        number = next(x["project_id"] for x in found if x["name"] == project)
        print(number)
        # I list its tasks.
        found = apis.todoist.show_tasks(access_token=todoist_token, project_id=number)["no_section_tasks"]
        print(len(found))
        # I delete the right ones.
        for x in found:
            if x["is_completed"]:
                apis.todoist.delete_task(access_token=todoist_token, task_id=x["task_id"])
        # All is done.
        apis.supervisor.complete_task()


class TodoCreate(Scenario):
    """Add a task to a project."""

    DIFFICULTY = 1
    APPS = ("todoist",)
    VARIANTS = ({"priority": "high"}, {"priority": "medium"}, {"priority": "low"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, priority: str) -> Draw:
        project = rng.choice(sorted(world.todos[person.id]))
        used = {one.title for one in world.todos[person.id][project]}
        title = rng.choice([one for one in pool(TODOS, person.share) if one not in used])
        instruction = phrased(
            rng,
            f'Add the task "{title}" with {priority} priority to my Todoist project "{project}".',
            f'In Todoist, create a {priority} priority task "{title}" in the project "{project}".',
        )
        row = {"title": title, "priority": priority, "project.name": project, "project.user.email": person.email}
        public = {"project": project, "title": title, "priority": priority}
        return Draw(instruction, public, expect={"todoist.Task": Rows(added=[row])})

    @staticmethod
    def solution(apis: Any, todoist_token: str, project: str, title: str, priority: str) -> None:
        # I look for the project.
        found = all_pages(apis.todoist.show_projects, access_token=todoist_token)
        number = next(x["project_id"] for x in found if x["name"] == project)
        print(number)
        # I add the task.
        apis.todoist.create_task(access_token=todoist_token, project_id=number, title=title, priority=priority)
        # All is done.
        apis.supervisor.complete_task()


class TodoCount(Scenario):
    """A question: how many open, or completed, tasks a project has."""

    DIFFICULTY = 1
    APPS = ("todoist",)
    VARIANTS = ({"completed": False}, {"completed": True})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, completed: bool) -> Draw:
        project = rng.choice(sorted(world.todos[person.id]))
        count = sum(one.completed == completed for one in world.todos[person.id][project])
        state = "completed" if completed else "open"
        instruction = phrased(
            rng,
            f'How many {state} tasks are in my Todoist project "{project}"?',
            f'Count the {state} tasks of the project "{project}" in Todoist.',
        )
        return Draw(instruction, {"project": project, "completed": completed}, count)

    @staticmethod
    def solution(apis: Any, todoist_token: str, project: str, completed: bool) -> None:
        # I look for the project.
        found = all_pages(apis.todoist.show_projects, access_token=todoist_token)
        number = next(x["project_id"] for x in found if x["name"] == project)
        print(number)
        # I list its tasks.
        found = apis.todoist.show_tasks(access_token=todoist_token, project_id=number)["no_section_tasks"]
        total = len([x for x in found if x["is_completed"] == completed])
        print(total)
        # That is the answer.
        apis.supervisor.complete_task(answer=total)


class TodoPriority(Scenario):
    """Give one task another priority."""

    DIFFICULTY = 2
    APPS = ("todoist",)
    VARIANTS = ({"priority": "high"}, {"priority": "medium"}, {"priority": "low"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, priority: str) -> Draw:
        project = rng.choice(sorted(world.todos[person.id]))
        fitting = [one.title for one in world.todos[person.id][project] if one.priority != priority]
        if not fitting:
            raise CannotDraw
        title = rng.choice(fitting)
        instruction = phrased(
            rng,
            f'Give the task "{title}" in my Todoist project "{project}" {priority} priority.',
            f'Set the priority of "{title}" in the Todoist project "{project}" to {priority}.',
        )
        row = {"title": title, "priority": priority, "project.name": project}
        expect = {"todoist.Task": Rows(updated=[row], fields=["priority"])}
        return Draw(instruction, {"project": project, "title": title, "priority": priority}, expect=expect)

    @staticmethod
    def solution(apis: Any, todoist_token: str, project: str, title: str, priority: str) -> None:
        # I look for the project.
        found = all_pages(apis.todoist.show_projects, access_token=todoist_token)
        number = next(x["project_id"] for x in found if x["name"] == project)
        print(number)
        # I look for the task.
        found = apis.todoist.show_tasks(access_token=todoist_token, project_id=number)["no_section_tasks"]
        task = next(x for x in found if x["title"] == title)
        print(task["task_id"])
        # I change it.
        apis.todoist.update_task(access_token=todoist_token, task_id=task["task_id"], priority=priority)
        # All is done.
        apis.supervisor.complete_task()


class TodosFromNote(Scenario):
    """Add a task to a project for each line of a note."""

    DIFFICULTY = 3
    APPS = ("simple_note", "todoist")

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        title, content = rng.choice(world.notes[person.id])
        project = rng.choice(sorted(world.todos[person.id]))
        instruction = phrased(
            rng,
            f'Add each line of my Simple Note "{title}" as a task to my Todoist project "{project}".',
            f'In the Todoist project "{project}", create a task for every line of my Simple Note "{title}".',
        )
        rows = [{"title": line, "project.name": project} for line in content.splitlines()]
        return Draw(instruction, {"title": title, "project": project}, expect={"todoist.Task": Rows(added=rows)})

    @staticmethod
    def solution(apis: Any, simple_note_token: str, todoist_token: str, title: str, project: str) -> None:
        # I look for the note.
        found = all_pages(apis.simple_note.search_notes, access_token=simple_note_token, query=title)
        note = next(x for x in found if x["title"] == title)
        note = apis.simple_note.show_note(access_token=simple_note_token, note_id=note["note_id"])
        print(note["content"])
        # I look for the project.
        found = all_pages(apis.todoist.show_projects, access_token=todoist_token)
        number = next(x["project_id"] for x in found if x["name"] == project)
        print(number)
        # I add the tasks.
        for line in note["content"].splitlines():
            apis.todoist.create_task(access_token=todoist_token, project_id=number, title=line)
        # All is done.
        apis.supervisor.complete_task()
