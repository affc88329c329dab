"""Eviction thresholds, grace periods and minimum reclaims that can be, and those that cannot."""

import pytest

from tests.unit.config.rule_checks import found

HARD, SOFT = "evictionHard", "evictionSoft"
GRACE, RECLAIM = "evictionSoftGracePeriod", "evictionMinimumReclaim"
THRESHOLDS = [
    ("0%", True), ("100%", True), ("100.1%", False), ("-1%", False), ("5e1%", True), ("%", False), ("nan%", False),
    (" 5%", False), ("5", True), ("0", False), ("-5Mi", False), ("1Mi", True), ("x", False), ("", False), (None, False),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("key", [HARD, SOFT])
@pytest.mark.parametrize(("text", "good"), THRESHOLDS)
def test_a_threshold_is_a_percentage_or_above_nothing(key: str, text: str | None, good: bool) -> None:
    lines = found({key: {"nodefs.available": text}, GRACE: {"nodefs.available": "1m"}})
    start = f'{key}.nodefs.available: is "{text or ""}", must be a positive quantity or a percentage (such as'
    assert [line[: len(start)] for line in lines] == ([] if good else [start])


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("0", True),
        ("-1", False),
        ("0%", False),
        ("0.1%", True),
        ("500%", True),
        ("1Gi", True),
        ("x", False),
        ("", False),
    ],
)
def test_a_minimum_reclaim_may_be_nothing_but_not_no_percent(text: str, good: bool) -> None:
    lines = found({RECLAIM: {"memory.available": text}})
    start = f'{RECLAIM}.memory.available: is "{text}", must be a quantity that is not negative or a percentage above 0'
    assert [line[: len(start)] for line in lines] == ([] if good else [start])


@pytest.mark.parametrize(("text", "good"), [("0s", True), ("-1s", False), ("1m30s", True), ("90", False), ("", False)])
def test_a_grace_period_lasts_or_is_nothing(text: str, good: bool) -> None:
    lines = found({GRACE: {"memory.available": text}})
    start = f'{GRACE}.memory.available: is "{text}", must be a duration that is not negative'
    assert [line[: len(start)] for line in lines] == ([] if good else [start])


@pytest.mark.parametrize("key", [HARD, SOFT, GRACE, RECLAIM])
def test_only_known_signals_stand_in_a_map_of_signals(key: str) -> None:
    [line] = found({key: {"memory.free": "5%"}})
    assert line.startswith(f"{key}.memory.free: is not an eviction signal (signals are memory.available, nodefs")


def test_a_soft_threshold_needs_its_grace_period() -> None:
    [line] = found({SOFT: {"pid.available": "5%"}})
    assert line == f"{SOFT}.pid.available: has no grace period (add {GRACE}.pid.available)"
    assert found({SOFT: {"pid.available": "5%"}, GRACE: {"pid.available": "0s"}}) == []
