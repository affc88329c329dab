"""`shared.model.frozen_copy.replace` returns a copy of a struct and of a dataclass."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
from msgspec import Struct

from shared.model.frozen_copy import replace


class Range(Struct, frozen=True, kw_only=True, dict=True):
    """Has two numbers, and a text that is computed of them when it is read."""

    low: int = 0
    high: int = 0

    @cached_property
    def text(self) -> str:
        return f"{self.low}-{self.high}"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Has the same as a dataclass."""

    low: int = 0
    high: int = 0

    @cached_property
    def text(self) -> str:
        return f"{self.low}-{self.high}"


KINDS = pytest.mark.parametrize("kind", [Range, Bounds])


@KINDS
@pytest.mark.parametrize("changes", [{}, {"low": 1}, {"low": 2, "high": 3}])
def test_a_copy_has_the_values_of_the_original_and_the_changes(kind: type[Any], changes: dict[str, int]) -> None:
    value = kind(high=9)
    copy = replace(value, **changes)
    assert copy == kind(**{"high": 9} | changes)
    assert copy is not value
    assert value == kind(high=9)


@KINDS
def test_a_text_that_was_computed_of_other_values_is_computed_again(kind: type[Any]) -> None:
    value = kind(high=9)
    assert value.text == "0-9"
    assert replace(value, low=4).text == "4-9"


@KINDS
def test_a_copy_is_frozen(kind: type[Any]) -> None:
    with pytest.raises(AttributeError):
        replace(kind(), low=1).low = 2


@KINDS
def test_an_unknown_field_is_a_type_error(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match="middle"):
        replace(kind(), middle=1)
