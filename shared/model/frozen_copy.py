"""`replace` of frozen values. Type checkers see `dataclasses.replace`, with its check of the arguments."""

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import replace
else:
    import dataclasses

    from msgspec import Struct, structs

    T = TypeVar("T")

    def replace(value: T, /, **changes: Any) -> T:
        """Return a copy with other values of these fields. `value`: a struct or a dataclass. Raises TypeError for an
        unknown field."""
        return (structs if isinstance(value, Struct) else dataclasses).replace(value, **changes)


__all__ = ["replace"]
