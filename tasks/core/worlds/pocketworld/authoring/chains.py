"""Tasks of several requests: templates chained so that no two of them share an app, and at most one asks a question.

What one request changes another does not read, so that they can be met in any order.
"""

from random import Random

from tasks.core.worlds.pocketworld.authoring.apps import App
from tasks.core.worlds.pocketworld.authoring.templates import KNOWN_TEMPLATES, TEMPLATES, Template

Link = tuple[Template, tuple[App, ...]]
NamedLink = tuple[Template, tuple[str, ...]]
JOIN = "+"


def chained(first: Template, apps: tuple[str, ...], length: int, random: Random) -> tuple[str, tuple[str, ...], int]:
    """A chain that begins with `first`: its templates' names joined, all their apps, its difficulty (that of `first`).

    The others are of train's templates and no harder; their apps are ones that the chain does not have yet.
    """
    templates, taken = [first], list(apps)
    while len(templates) < length:
        template, more = random.choice(_fitting(templates, taken))
        templates.append(template)
        taken += more
    return JOIN.join(template.name for template in templates), tuple(taken), first.difficulty


def read_chain(names: str, apps: tuple[str, ...]) -> list[NamedLink]:
    """The templates of a chain with their apps. Raises KeyError for an unknown name, ValueError for wrong apps."""
    links: list[NamedLink] = []
    rest = list(apps)
    for name in names.split(JOIN):
        template = TEMPLATES[name]
        count = len(template.apps[0])
        own, rest = tuple(rest[:count]), rest[count:]
        if own not in template.apps:
            raise ValueError(f"template {name} has no apps {list(own)}")
        links.append((template, own))
    if rest:
        raise ValueError(f"no template uses the apps {rest}")
    return links


def _fitting(chain: list[Template], taken: list[str]) -> list[NamedLink]:
    may_ask = not any(template.asks for template in chain)
    return [
        (template, apps)
        for template in KNOWN_TEMPLATES
        if template.difficulty <= chain[0].difficulty and (may_ask or not template.asks)
        for apps in template.apps
        if not set(apps) & set(taken)
    ]
