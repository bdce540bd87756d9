"""Tasks of several requests: chains of templates with no app in common and at most one question.

No request reads what another one changes, so they can be fulfilled in any order.
"""

from random import Random

from tasks.core.worlds.pocketworld.authoring.apps import App
from tasks.core.worlds.pocketworld.authoring.templates import KNOWN_TEMPLATES, TEMPLATES, Template

Link = tuple[Template, tuple[App, ...]]
NamedLink = tuple[Template, tuple[str, ...]]
JOIN = "+"


def chained(first: Template, apps: tuple[str, ...], length: int, random: Random) -> tuple[str, tuple[str, ...], int]:
    """Draw a chain that begins with `first`. Returns its templates' names joined, all their apps, and its difficulty.

    The difficulty is that of `first`. The other templates are from train and no harder; they use apps that the chain
    does not have yet.
    """
    templates, taken = [first], list(apps)
    while len(templates) < length:
        template, more = random.choice(_fitting(templates, taken))
        templates.append(template)
        taken += more
    return JOIN.join(template.name for template in templates), tuple(taken), first.difficulty


def read_chain(names: str, apps: tuple[str, ...]) -> list[NamedLink]:
    """Return a chain's templates with their apps. Raises KeyError for an unknown name, ValueError for wrong apps."""
    links: list[NamedLink] = []
    rest = list(apps)
    for name in names.split(JOIN):
        template = TEMPLATES[name]
        count = len(template.apps[0])
        link_apps, rest = tuple(rest[:count]), rest[count:]
        if link_apps not in template.apps:
            raise ValueError(f"template {name} has no apps {list(link_apps)}")
        links.append((template, link_apps))
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
