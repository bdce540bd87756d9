"""Rules of a model that a document breaks, in words."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails


def broken_rules(error: ValidationError, whole: str) -> list[str]:
    """Return a text for each rule, such as "update.epochs: Input should be greater than 0"; never empty.

    `whole` names what breaks a rule as a whole instead of by one field; with "" the text is the rule alone.
    """
    items = [item for item in error.errors() if item["type"] != "default_factory_not_called"]  # it follows from another
    rules = ((".".join(map(str, _knob(item["loc"]))) or whole, item["msg"]) for item in map(_of_the_name, items))
    return [f"{knob}: {rule}" if knob else rule for knob, rule in rules]


def _knob(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return `place` without the tag that pydantic puts behind a section of several kinds: world.pocketworld.seed."""
    tagged = location and location[0] in ("world", "engine") and location[1:] != ("name",)
    return (location[0], *location[2:]) if tagged else location


def _of_the_name(item: ErrorDetails) -> ErrorDetails:
    """Return `item`; of a section whose name is no kind of it, as a rule of the knob `name`."""
    if item["type"] != "union_tag_invalid":
        return item
    return {**item, "loc": (*item["loc"], "name"), "msg": f"Input should be {item['ctx']['expected_tags']}"}
