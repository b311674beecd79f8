"""`Message` and the table of all of them."""

from __future__ import annotations

import msgspec

_TYPES: dict[str, type[Message]] = {}


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A typed message. Subclasses are known on the wire by their class name.

    Fields are what msgspec takes (numbers, text, lists, other structs) and `numpy.ndarray`, which travels as a frame of
    its own. Bounds belong in the type: ``Annotated[int, msgspec.Meta(ge=0)]``.
    """

    def __init_subclass__(cls, **options) -> None:
        super().__init_subclass__(**options)
        known = _TYPES.setdefault(cls.__name__, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"two messages are called {cls.__name__}: in {known.__module__} and {cls.__module__}")
        _TYPES[cls.__name__] = cls


def message_type(name: str) -> type[Message] | None:
    """The message class called `name`, None when there is none."""
    return _TYPES.get(name)
