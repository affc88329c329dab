"""Kubernetes quantities (`100m`, `64Mi`, `1e3`) as exact integers of nano units; no floats, no rounding but upwards.

Decides what a quantity text means and how it is written; knows no resource names.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, total_ordering
from typing import Any

NANO = 10**9
_MAX_NANOS = (2**63 - 1) * NANO  # larger ones are capped, as apimachinery does
_SHAPE = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+)([-+]?[0-9]*+)\Z", re.ASCII)
_MESSAGE = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"  # apimachinery's text
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {0: "", **{exponent: suffix for suffix, exponent in _BINARY.items()}}
_MAX_DIGITS = 400  # digits; a quantity is capped at 19 digits anyway


class Format(StrEnum):
    """How a quantity was written, and so how it is written back."""

    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"


class QuantityError(ValueError):
    """Not a quantity; the text is apimachinery's."""


def _divide_up(amount: int, divisor: int) -> int:
    """Quotient rounded away from zero: something asked for never becomes nothing."""
    magnitude = -(-abs(amount) // divisor)
    return magnitude if amount >= 0 else -magnitude


@total_ordering
@dataclass(frozen=True, eq=False)
class Quantity:
    """An amount in nano units. Equality and order look at the amount alone, not at how it was written."""

    nanos: int
    format: Format = Format.DECIMAL_SI

    @classmethod
    def of_base(cls, base: int, *, binary: bool = False) -> "Quantity":
        """Return the quantity of an integer number of base units (cores, bytes)."""
        return cls(base * NANO, Format.BINARY_SI if binary else Format.DECIMAL_SI)

    def base(self) -> int:
        """Return the amount in base units, rounded up."""
        return _divide_up(self.nanos, NANO)

    def milli(self) -> int:
        """Return the amount in thousandths, rounded up."""
        return _divide_up(self.nanos, NANO // 1000)

    def rounded_to_milli(self) -> "Quantity":
        """Rounded up to a integer number of thousandths, as the API server does with resource lists."""
        return Quantity(self.milli() * (NANO // 1000), self.format)

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos, self.format if self.nanos or not other.nanos else other.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, self.format)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __str__(self) -> str:
        """Return the canonical form: no fraction, the largest suffix that keeps it exact."""
        if not self.nanos:
            return "0"
        small_or_fraction = abs(self.nanos) < 1024 * NANO or self.nanos % NANO
        if self.format is Format.BINARY_SI and not small_or_fraction:
            return self._binary()
        amount, exponent = self.nanos, -9
        while exponent < 18 and amount % 1000 == 0:
            amount, exponent = amount // 1000, exponent + 3
        if self.format is Format.DECIMAL_EXPONENT:
            return f"{amount}e{exponent}" if exponent else str(amount)
        return f"{amount}{_DECIMAL_SUFFIX[exponent]}"

    def _binary(self) -> str:
        amount, exponent = self.nanos // NANO, 0
        while exponent < 60 and amount % 1024 == 0:
            amount, exponent = amount // 1024, exponent + 10
        return f"{amount}{_BINARY_SUFFIX[exponent]}"


ZERO = Quantity(0)


def parse_quantity(value: Any) -> Quantity:
    """Return a quantity from JSON: text, or a bare number. Raises QuantityError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(_MESSAGE)
    if isinstance(value, int) and value.bit_length() > _MAX_DIGITS:
        raise QuantityError(_MESSAGE)
    text = value.strip() if isinstance(value, str) else repr(value)
    if len(text) > _MAX_DIGITS:
        raise QuantityError(_MESSAGE)
    return _parse_text(text)


@lru_cache(512)  # pods request few different amounts, and each is read a dozen times
def _parse_text(text: str) -> Quantity:
    match = _SHAPE.match(text)
    if match is None or not (match[2] or match[3]):
        raise QuantityError(_MESSAGE)
    sign, integer, fraction, letters, number = match.groups(default="")
    base, exponent, form = _scale(letters, number)
    digits = int(integer + fraction)
    nanos = _capped(digits, len(fraction), base, exponent)
    if form is Format.BINARY_SI and 0 < nanos < NANO:
        form = Format.DECIMAL_SI  # avoids rounding, as apimachinery does
    return Quantity(-nanos if sign == "-" else nanos, form)


def _scale(letters: str, number: str) -> tuple[int, int, Format]:
    """Return base (10 or 2), exponent and format of a suffix."""
    if not number and letters in _BINARY:
        return 2, _BINARY[letters], Format.BINARY_SI
    if not number and letters in _DECIMAL:
        return 10, _DECIMAL[letters], Format.DECIMAL_SI
    if letters in ("e", "E") and number.lstrip("+-"):
        return 10, int(number), Format.DECIMAL_EXPONENT
    raise QuantityError("unable to parse quantity's suffix")


def _capped(digits: int, decimals: int, base: int, exponent: int) -> int:
    """digits / 10^decimals * base^exponent in nanos, rounded up, at most _MAX_NANOS."""
    if not digits:
        return 0
    if base == 2:
        return min(_MAX_NANOS, _divide_up(digits * 2**exponent * NANO, 10**decimals))
    shift = exponent - decimals + 9
    if shift >= 0:
        return _MAX_NANOS if shift > 40 else min(_MAX_NANOS, digits * 10**shift)
    return 1 if -shift > len(str(digits)) else min(_MAX_NANOS, _divide_up(digits, 10**-shift))


def is_quantity(value: Any) -> bool:
    """Return whether the value parses."""
    try:
        parse_quantity(value)
    except QuantityError:
        return False
    return True
