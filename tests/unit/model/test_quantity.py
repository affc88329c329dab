"""Quantities are exact, round upwards and are written as the API writes them."""

from fractions import Fraction
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.quantity import Format, Quantity, QuantityError, is_quantity, parse_quantity

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-3", "e+2"]


def test_a_quantity_is_read_exactly_and_written_canonically(subtests: pytest.Subtests) -> None:
    for text, canonical, base, milli in [
        ("0", "0", 0, 0),
        ("1", "1", 1, 1000),
        ("0.1", "100m", 1, 100),
        ("1.5", "1500m", 2, 1500),
        ("1500m", "1500m", 2, 1500),
        ("1000", "1k", 1000, 1_000_000),
        ("100000000", "100M", 10**8, 10**11),
        ("1Gi", "1Gi", 2**30, 2**30 * 1000),
        ("1.5Gi", "1536Mi", 3 * 2**29, 3 * 2**29 * 1000),
        ("0.5Ki", "512", 512, 512_000),
        ("1000Ki", "1000Ki", 1_024_000, 1_024_000_000),
        ("1e3", "1e3", 1000, 1_000_000),
        ("1E", "1E", 10**18, 10**21),
        ("-1.5", "-1500m", -2, -1500),
        ("0.1n", "1n", 1, 1),
        ("99999999999999999999", "9223372036854775807", 2**63 - 1, (2**63 - 1) * 1000),
        (3, "3", 3, 3000),
        (0.25, "250m", 1, 250),
    ]:
        with subtests.test(f"{text!r:.80}"):
            quantity = parse_quantity(text)
            assert (str(quantity), quantity.base(), quantity.milli()) == (canonical, base, milli)


def test_what_is_no_quantity_is_refused(subtests: pytest.Subtests) -> None:
    for text in ["", ".", "m", "1.1.1", "1 Mi", "1mi", "1KiB", "--1", "0x10", "1e", "1e1.5", "½", "٣"]:
        with subtests.test(text), pytest.raises(QuantityError):
            parse_quantity(text)


@pytest.mark.parametrize("value", [None, True, [], {}, float("nan"), float("inf"), "9" * 5000])
def test_values_that_cannot_be_quantities_are_refused(value: object) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(value)


def test_an_absurd_exponent_costs_nothing() -> None:
    assert parse_quantity("1e999999999").base() == 2**63 - 1
    assert parse_quantity("1e-999999999").nanos == 1
    assert parse_quantity("0e999999999").nanos == 0


@given(st.text(alphabet="0123456789.+-eEinumkKMGTP ", max_size=12))
def test_no_text_raises_anything_but_its_own_error(text: str) -> None:
    try:
        parse_quantity(text)
    except QuantityError:
        return


@given(st.integers(-(10**12), 10**12), st.sampled_from(SUFFIXES))
def test_the_canonical_form_means_the_same(number: int, suffix: str) -> None:
    quantity = parse_quantity(f"{number}{suffix}")
    again = parse_quantity(str(quantity))
    assert again == quantity
    assert str(again) == str(quantity)


@given(st.integers(0, (2**63 - 1) * 10**9), st.sampled_from(list(Format)))
def test_rounding_is_upwards_and_by_less_than_one(nanos: int, form: Format) -> None:
    quantity = Quantity(nanos, form)
    exact = Fraction(nanos, 10**9)
    assert 0 <= quantity.base() - exact < 1
    assert 0 <= quantity.milli() - exact * 1000 < 1


def test_sums_and_order_look_at_the_amount_alone() -> None:
    assert parse_quantity("1Ki") == parse_quantity("1024")
    assert parse_quantity("500m") + parse_quantity("0.5") == parse_quantity("1")
    assert parse_quantity("2") - parse_quantity("500m") == parse_quantity("1500m")
    assert parse_quantity("999m") < parse_quantity("1") <= parse_quantity("1000m")
    assert not parse_quantity("0Mi")
    assert len({parse_quantity("1k"), parse_quantity("1000")}) == 1
    assert str(Quantity.of_base(2048, binary=True)) == "2Ki"


@pytest.mark.parametrize("text", ["1" * 399 + "x", "1" * 400, "0." + "0" * 397 + "1", "1e999999999", "1E" * 200])
def test_a_long_quantity_costs_microseconds(text: str) -> None:
    before = process_time()
    for _ in range(1_000):
        is_quantity(text)
    assert process_time() - before < 0.25
