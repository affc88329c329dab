"""Many probes at once on a real node: none is late by more than its period, and none kills what is well."""

import pytest

from tests.probe_load import measure

pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.timeout(240)]

PERIOD = 1  # seconds


async def test_no_probe_is_late_and_none_kills(capsys: pytest.CaptureFixture[str]) -> None:
    load = await measure(30, pods=8, per_pod=3, execs=2, period=PERIOD)
    with capsys.disabled():
        print(f"\n{load.table()}")
    assert load.restarted == []
    assert set(load.by_handler) == {"exec", "httpGet", "tcpSocket", "grpc"}
    for handler, late in load.by_handler.items():
        assert late.tries >= 30 and late.worst <= PERIOD, f"{handler}: {late.tries} tries, {late.worst:.3f} s late"
