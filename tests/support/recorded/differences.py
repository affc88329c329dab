"""Finds where two values of JSON differ: a JSON pointer for each place, with what is there and what should be."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

# Lists of objects whose elements have one of these keys, each with another value, are compared by it.
_KEYS = ("mountPath", "container_path")
_ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """One place at which two values differ. `pointer`: RFC 6901; where lists are compared by a key, that key's value
    instead of an index."""

    pointer: str
    actual: Any
    expected: Any

    def __str__(self) -> str:
        return f"{self.pointer or '/'}: actual {_shown(self.actual)}, expected {_shown(self.expected)}"

    def matches(self, pattern: str) -> bool:
        """Return whether the place is, or is below, a pointer that the pattern matches; `*` matches any text, `/`
        too."""
        return fnmatchcase(self.pointer, pattern) or fnmatchcase(self.pointer, f"{pattern}/*")


def differences(actual: Any, expected: Any, pointer: str = "") -> list[Difference]:
    """Return all places, in order. An empty list or object is the same as none."""
    if isinstance(actual, dict | None) and isinstance(expected, dict | None) and (actual or expected):
        return _of_objects(actual or {}, expected or {}, pointer)
    if isinstance(actual, list | tuple | None) and isinstance(expected, list | tuple | None) and (actual or expected):
        return _of_lists(actual or (), expected or (), pointer)
    if actual == expected or (not actual and not expected and (actual is None or expected is None)):
        return []
    return [Difference(pointer, actual, expected)]


def assert_same(actual: Any, expected: Any) -> None:
    """Fail with one line for each place that differs."""
    __tracebackhide__ = True
    if actual != expected:
        found = differences(actual, expected)
        raise AssertionError("\n".join(map(str, found)) or f"actual {actual!r}, expected {expected!r}")


def _of_objects(actual: dict[Any, Any], expected: dict[Any, Any], pointer: str) -> list[Difference]:
    found: list[Difference] = []
    for key in sorted({*actual, *expected}, key=str):
        place = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
        both = key in actual and key in expected
        if both or isinstance(actual.get(key), dict | list) or isinstance(expected.get(key), dict | list):
            found += differences(actual.get(key), expected.get(key), place)
        elif actual.get(key) or expected.get(key) or key in expected:
            found.append(Difference(place, actual.get(key, _ABSENT), expected.get(key, _ABSENT)))
    return found


def _of_lists(actual: Iterable[Any], expected: Iterable[Any], pointer: str) -> list[Difference]:
    ours, theirs = list(actual), list(expected)
    for key in _KEYS:
        if (first := _by(ours, key)) is not None and (second := _by(theirs, key)) is not None:
            order = [name for name in first if name in second] == [name for name in second if name in first]
            wrong = [] if order else [Difference(f"{pointer}/order", list(first), list(second))]
            return _of_objects(first, second, pointer) + wrong
    found = [
        line for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) for line in differences(a, b, f"{pointer}/{i}")
    ]
    shorter, longer = sorted((ours, theirs), key=len)
    for index in range(len(shorter), len(longer)):
        sides = (ours[index], _ABSENT) if longer is ours else (_ABSENT, theirs[index])
        found.append(Difference(f"{pointer}/{index}", *sides))
    return found


def _by(values: list[Any], key: str) -> dict[Any, Any] | None:
    if not all(isinstance(value, dict) and key in value for value in values):
        return None
    found = {value[key]: value for value in values}
    return found if len(found) == len(values) else None


def _shown(value: Any) -> str:
    return "nothing" if value is _ABSENT else repr(value)
