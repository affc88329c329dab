"""The amount that an eviction threshold stands for."""

import pytest

from shared.config.field_table import EVICTION_HARD
from shared.config.fields import EVICTION_SIGNALS
from shared.model.conditions import PRESSURE_CONDITIONS
from shared.model.eviction import SIGNALS, reclaim_amount, threshold_amount


@pytest.mark.parametrize(
    ("text", "capacity", "amount"),
    [
        ("100Mi", 0, 100 << 20),
        ("10%", 1000, 100),
        ("10%", 100 * 10**9, 10_000_000_149),  # the kubelet keeps the fraction as float32
        ("0%", 1000, 0),
        ("100%", 1000, 0),
    ],
)
def test_a_threshold_is_a_quantity_or_a_share_of_the_capacity(text: str, capacity: int, amount: int) -> None:
    assert threshold_amount(text, capacity) == amount


@pytest.mark.parametrize(("text", "capacity", "amount"), [("100Mi", 0, 100 << 20), ("10%", 1000, 100), ("100%", 9, 9)])
def test_a_minimum_reclaim_is_a_quantity_or_a_share_of_the_capacity(text: str, capacity: int, amount: int) -> None:
    assert reclaim_amount(text, capacity) == amount


def test_the_signals_are_those_the_configuration_knows_and_set_the_three_pressure_conditions() -> None:
    assert set(SIGNALS) == set(EVICTION_SIGNALS)
    assert {meaning.condition for meaning in SIGNALS.values()} == set(PRESSURE_CONDITIONS)
    assert set(EVICTION_HARD) < set(SIGNALS)
