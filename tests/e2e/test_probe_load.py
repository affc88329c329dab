"""Many probes at once on a real node: they come in time, and none kills what is well."""

import pytest

from tests.load.probe_load import measure

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

PERIOD = 1  # seconds


async def test_probes_come_in_time_and_none_kills(capsys: pytest.CaptureFixture[str]) -> None:
    load = await measure(15, pods=8, per_pod=3, execs=2, period=PERIOD)
    with capsys.disabled():
        print(f"\n{load.table()}")
    assert load.restarted == []
    assert set(load.by_handler) == {"exec", "httpGet", "tcpSocket", "grpc"}
    for handler, late in load.by_handler.items():
        # A burst of other work may delay a few.
        assert late.tries >= 15 and late.share(0.9) <= PERIOD, (
            f"{handler}: {late.tries} tries, {late.share(0.9):.3f} s late"
        )
