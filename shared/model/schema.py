"""The one language in which the shape of JSON data is described: pod specs, configuration and its other files. Pure."""

from enum import StrEnum
from typing import Any

import msgspec


class Scalar(StrEnum):
    """The type of one value, in the words of an error message: "must be …"."""

    BOOLEAN = "true or false"
    STRING = "a string"
    INT32 = "a 32-bit whole number"
    INT64 = "a 64-bit whole number"
    UINT32 = "a whole number from 0 to 4294967295"
    FLOAT64 = "a number"
    INT_OR_STRING = "a 32-bit whole number or a string"
    QUANTITY = 'a quantity such as "100Mi"'  # text or number
    DURATION = 'a duration string such as "1m30s"'
    DURATION_OR_NANOSECONDS = 'a duration string such as "5s", or whole nanoseconds'


INTEGER_LIMITS = {
    Scalar.INT32: (-(2**31), 2**31 - 1),
    Scalar.INT64: (-(2**63), 2**63 - 1),
    Scalar.UINT32: (0, 2**32 - 1),
}


class ListOf(msgspec.Struct, frozen=True):
    """A list, each item of one schema."""

    item: "Schema"


class MapOf(msgspec.Struct, frozen=True):
    """An object with keys of the user's choosing, each value of one schema."""

    value: "Schema"


Struct = dict[str, Any]  # the name of a field -> its Schema
Schema = Scalar | ListOf | MapOf | Struct


def is_of_type(value: Any, scalar: Scalar) -> bool:
    """Return whether the JSON type and the range fit; the text of a quantity or of a duration may still not be one."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    match scalar:
        case Scalar.BOOLEAN:
            return isinstance(value, bool)
        case Scalar.STRING | Scalar.DURATION:
            return isinstance(value, str)
        case Scalar.INT32 | Scalar.INT64 | Scalar.UINT32:
            low, high = INTEGER_LIMITS[scalar]
            return is_whole and low <= value <= high
        case Scalar.FLOAT64:
            return is_whole or isinstance(value, float)
        case Scalar.QUANTITY:
            return is_whole or isinstance(value, str | float)
        case Scalar.INT_OR_STRING:
            return isinstance(value, str) or is_of_type(value, Scalar.INT32)
        case Scalar.DURATION_OR_NANOSECONDS:
            return isinstance(value, str) or is_of_type(value, Scalar.INT64)
