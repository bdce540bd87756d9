"""The texts below fields, as the source of each class has them."""

from pydantic import BaseModel

from tasks.core.config.descriptions import descriptions
from tasks.core.config.section import Section


class Outer:
    """Holds another class of the same name as one below."""

    class Inner(Section):
        """A class in a class."""

        size: int
        """In a class."""


def made_here() -> type[BaseModel]:
    class Inner(Section):
        """A class in a function."""

        size: int
        """In a
        function."""
        bare: int

    return Inner


def test_classes_of_one_name_have_their_own_texts() -> None:
    assert descriptions(Outer.Inner) == {"size": "In a class."}
    assert descriptions(made_here()) == {"size": "In a function."}
    assert descriptions(type("Inner", (Outer.Inner,), {})) == {"size": "In a class."}
