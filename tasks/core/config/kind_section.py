"""Sections of params.yaml whose `name` is that of a kind: it has the knobs that every kind has, and the kind's own.

    world: {name: sokoban, seed: 2502, code_blocks: first, sokoban: {...}}

A face (tasks/core/config/kinds.py) gives the class of its own section as `settings`; None: it has no knobs.
"""

from functools import cache
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

from pydantic import ValidationError, create_model, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from tasks.core.config.kinds import Kinds, UnknownKind
from tasks.core.config.section import Section

T = TypeVar("T", bound="KindSection")


class HasSettings(Protocol):
    """The part of a face that its section in params.yaml follows from."""

    @property
    def settings(self) -> type[Section] | None: ...


class KindSection(Section):
    """A section whose `name` says which kind of a thing is in use, with the section of that kind and no other."""

    kinds: ClassVar[Kinds]
    """Where kinds are found."""
    default_name: ClassVar[str]
    """The kind of a section that names none."""

    name: str

    @classmethod
    def of(cls, name: str | None = None, **content: Any) -> Self:
        """Return the section of a kind (None: the default) with this content, defaults elsewhere.

            WorldSection.of("sokoban", seed=5, sokoban=SokobanConfig(size=8))

        Raises ValidationError, also for an unknown name.
        """
        section: Self = cls.chosen({"name": name or cls.default_name, **content})
        return section

    @classmethod
    def chosen(cls, content: Any) -> Any:
        """Return the section that a mapping describes, as an instance of its kind's class; other content as it is."""
        if not isinstance(content, dict):
            return content
        name = cls.name_of(content)
        try:
            return _class_of(cls, str(name)).model_validate(content)
        except UnknownKind as error:
            wrong = PydanticCustomError("unknown_kind", "{text}", {"text": str(error)})
            raise ValidationError.from_exception_data(
                cls.__name__, [InitErrorDetails(type=wrong, loc=("name",), input=name)]
            ) from None

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the names of all kinds."""
        return frozenset(cls.kinds.names())

    @classmethod
    def is_kind(cls, name: str) -> bool:
        """Return whether this is the name of a kind."""
        return cls.kinds.has(name)

    @classmethod
    def name_of(cls, content: Any) -> Any:
        """Return the name in a mapping, or of a section; without one in a mapping it is the default's."""
        return content.get("name", cls.default_name) if isinstance(content, dict) else getattr(content, "name", None)

    @model_validator(mode="before")
    @classmethod
    def _only_the_named_section(cls, content: Any) -> Any:
        """Leave out the sections of other kinds: `name` may change on top of a file that has them."""
        if not isinstance(content, dict):
            return content
        return {name: value for name, value in content.items() if name in cls.model_fields or not cls.is_kind(name)}

    @property
    def own(self) -> Any:
        """The section of the kind in use; None where it has none."""
        return getattr(self, self.name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by content: the class is made at run time, so no name leads to it."""
        base = next(kind for kind in type(self).__mro__ if "kinds" in vars(kind))
        return base.chosen, (self.model_dump(),)  # type: ignore[attr-defined]


@cache
def _class_of(base: type[T], name: str) -> type[T]:
    """Return the class of `base`'s sections with this name. Raises UnknownKind."""
    face: HasSettings = base.kinds.find(name)
    fields: dict[str, Any] = {"name": (Literal[name], name)}  # type: ignore[valid-type]
    if face.settings is not None:
        fields[name] = (face.settings, face.settings())
    return create_model(f"{base.__name__}Of{name.title().replace('_', '')}", __base__=base, **fields)
