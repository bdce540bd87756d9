"""Complete all tasks of one priority in a to-do project."""

from random import Random
from typing import Any

from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 2
APPS = ("todoist",)
VARIANTS = ({"priority": "high"}, {"priority": "medium"}, {"priority": "low"})


def draw(rng: Random, world: World, person: Person, priority: str) -> Draw:
    project = rng.choice(sorted(world.todos[person.id]))
    todos = world.todos[person.id][project]
    titles = sorted(todo.title for todo in todos if todo.priority == priority and not todo.completed)
    return Draw(
        f'Mark all {priority} priority tasks in my Todoist project "{project}" as completed.',
        {"project": project, "priority": priority},
        {"titles": titles},
    )


def solution(apis: Any, todoist_token: str, project: str, priority: str) -> None:
    projects = apis.todoist.show_projects(access_token=todoist_token, query=project, page_limit=20)
    project_id = next(one["project_id"] for one in projects if one["name"] == project)
    tasks = apis.todoist.show_tasks(access_token=todoist_token, project_id=project_id)
    tasks = tasks["no_section_tasks"] + [task for section in tasks["sections"] for task in section["tasks"]]
    for task in tasks:
        if task["priority"] == priority and not task["is_completed"]:
            apis.todoist.update_task(access_token=todoist_token, task_id=task["task_id"], is_completed=True)
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, public_data: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only tasks changed."):
        test.case(models.changed_model_names(), "==", {"todoist.Task"})
    added, updated, removed = models.changed_records("todoist.Task")
    with test("assert no task was added or removed."):
        test.case((len(added), len(removed)), "==", (0, 0))
    with test("assert exactly the open tasks of that priority changed, in the supervisor's project."):
        test.case(sorted(task.title for task in updated), "==", list(private_data.titles))
        test.case({task.project.name for task in updated}, "==", {public_data.project})
        test.case({task.project.user.email for task in updated}, "==", {main_user.email})
    with test("assert they are completed and otherwise unchanged."):
        test.case({task.is_completed for task in updated}, "==", {True})
        fields = [models.changed_field_names("todoist.Task", task.id) for task in updated]
        test.case(all(changed == {"is_completed"} for changed in fields), "==", True)
