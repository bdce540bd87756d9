"""Rules of a model that a document breaks, in words."""

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tasks.core.config.knob_names import closest_knob


def broken_rules(error: ValidationError, whole: str, section: type[BaseModel] | None = None) -> list[str]:
    """Return a text for each rule, such as "update.epochs: Input should be greater than 0"; never empty.

    `whole` names what breaks a rule as a whole instead of by one field; with "" the text is the rule alone. A name that
    `section` lacks is a rule with the name that may have been meant.
    """
    items = [item for item in error.errors() if item["type"] != "default_factory_not_called"]  # it follows from another
    rules = ((".".join(map(str, item["loc"])) or whole, _rule(item, section)) for item in items)
    return [f"{knob}: {rule}" if knob else rule for knob, rule in rules]


def _rule(item: ErrorDetails, section: type[BaseModel] | None) -> str:
    if section is None or item["type"] != "extra_forbidden":
        return item["msg"]
    meant = closest_knob(".".join(map(str, item["loc"])), section)
    return "no such knob" + (f"; did you mean {meant}?" if meant else f"; {_list_of_knobs(item['loc'])}")


def _list_of_knobs(location: tuple[int | str, ...]) -> str:
    """Return where the knobs beside the one at `location` are listed: a world's are on its own page."""
    if location[0] == "world" and len(location) > 2:
        return f"`python docs/hooks/knobs.py {location[1]}` lists those of this world"
    return "docs/configuration.md lists all"
