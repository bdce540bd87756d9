"""Rules of a model that a document breaks, in words."""

from pydantic import ValidationError


def broken_rules(error: ValidationError, whole: str) -> list[str]:
    """A text for each, such as "update.epochs: Input should be greater than 0"; never empty.

    `whole` names what breaks a rule as a whole, not by one field; "": the rule stands alone then.
    """
    items = [item for item in error.errors() if item["type"] != "default_factory_not_called"]  # it follows from another
    found = ((".".join(map(str, _knob(item["loc"]))) or whole, item["msg"]) for item in items)
    return [f"{place}: {rule}" if place else rule for place, rule in found]


def _knob(place: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return `place` without the tag that pydantic puts behind a section of several kinds: world.pocketworld.seed."""
    return (place[0], *place[2:]) if place and place[0] in ("world", "engine") else place
