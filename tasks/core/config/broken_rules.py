"""Rules of a model that a document breaks, in words."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails


def broken_rules(error: ValidationError, whole: str) -> list[str]:
    """A text for each, such as "update.epochs: Input should be greater than 0"; never empty.

    `whole` names what breaks a rule as a whole, not by one field; "": the rule stands alone then.
    """
    items = [item for item in error.errors() if item["type"] != "default_factory_not_called"]  # it follows from another
    found = ((".".join(map(str, _knob(item["loc"]))) or whole, item["msg"]) for item in map(_of_the_name, items))
    return [f"{place}: {rule}" if place else rule for place, rule in found]


def _knob(place: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return `place` without the tag that pydantic puts behind a section of several kinds: world.pocketworld.seed."""
    tagged = place and place[0] in ("world", "engine") and place[1:] != ("name",)
    return (place[0], *place[2:]) if tagged else place


def _of_the_name(item: ErrorDetails) -> ErrorDetails:
    """Return `item`; of a section whose name is no kind of it, as a rule of the knob `name`."""
    if item["type"] != "union_tag_invalid":
        return item
    return {**item, "loc": (*item["loc"], "name"), "msg": f"Input should be {item['ctx']['expected_tags']}"}
