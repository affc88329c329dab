"""`shared.model.frozen_copy.replace` returns what `dataclasses.replace` returns."""

import dataclasses
from functools import cached_property
from typing import Any

import pytest

from shared.model.frozen_copy import replace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Range:
    """Two numbers, and what is computed of them: at the construction, and when it is read."""

    low: int = 0
    high: int = 0
    size: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.high - self.low)

    @cached_property
    def text(self) -> str:
        return f"{self.low}-{self.high}"


@pytest.mark.parametrize("changes", [{}, {"low": 1}, {"low": 2, "high": 3}])
def test_a_copy_is_that_of_dataclasses(changes: dict[str, int]) -> None:
    value = Range(high=9)
    copy = replace(value, **changes)
    assert copy == dataclasses.replace(value, **changes)
    assert copy is not value
    assert vars(copy) == vars(dataclasses.replace(value, **changes))


def test_a_value_that_was_computed_of_other_fields_is_computed_again() -> None:
    value = Range(high=9)
    assert (value.text, value.size) == ("0-9", 9)
    copy = replace(value, low=4)
    assert (copy.text, copy.size) == ("4-9", 5)


def test_a_copy_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(Range(), low=1).low = 2  # type: ignore[misc]


def test_an_unknown_field_is_a_type_error() -> None:
    unknown: Any = {"middle": 1}
    with pytest.raises(TypeError, match="Range has no field middle"):
        replace(Range(), **unknown)
