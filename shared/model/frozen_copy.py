"""`replace` of frozen dataclasses, for values that a pod's every step copies.

Type checkers see `dataclasses.replace`, with its check of the arguments.
"""

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import replace
else:
    from dataclasses import fields

    T = TypeVar("T")

    _NAMES: dict[type[Any], dict[str, None]] = {}  # the fields of a class

    def replace(value: T, /, **changes: Any) -> T:
        """Return a copy with other values of these fields. `value`: a dataclass without slots. Raises TypeError.

        For 25 fields 1.5 µs of CPU time, and 7 µs with `dataclasses.replace`, which passes each to the constructor.
        """
        kind, known = type(value), vars(value)
        names = _NAMES.get(kind)
        if names is None:
            names = _NAMES[kind] = dict.fromkeys(field.name for field in fields(kind))
        if not changes.keys() <= names.keys():
            raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(changes.keys() - names.keys()))}")
        copy = object.__new__(kind)
        vars(copy).update({name: known[name] for name in names}, **changes)  # no value of a cached_property
        if hasattr(kind, "__post_init__"):
            copy.__post_init__()
        return copy


__all__ = ["replace"]
