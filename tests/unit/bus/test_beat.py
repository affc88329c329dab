"""The content of a beat."""

import pytest

from bus.beat import BEAT_SECONDS, MAX_TROUBLE_CHARACTERS, BeatContent, next_beat_in
from bus.ledger import Ledger


def test_a_beat_carries_numbers_progress_and_troubles() -> None:
    content = BeatContent("podsync", "i", 42)
    ledger = Ledger("pods.status", "i")
    ledger.put("a", b"1")
    content.progress("events", 7.0)
    content.trouble("runtime", "runtime not\nreachable")
    beat = content.beat(8.0, [ledger])
    assert (beat.service, beat.incarnation, beat.pid, beat.sent_at, beat.protocol) == ("podsync", "i", 42, 8.0, "2.9")
    assert beat.streams == {"pods.status": 1}
    assert beat.progress == {"events": 7.0}
    assert beat.troubles == ("runtime not reachable",)


def test_a_trouble_is_reported_when_it_changes_and_gone_when_cleared() -> None:
    content = BeatContent("podsync", "i", 42)
    assert content.trouble("runtime", "gone")
    assert not content.trouble("runtime", "gone")
    assert content.trouble("runtime", None)
    assert not content.trouble("runtime", None)
    assert content.beat(0.0, []).troubles == ()


def test_a_trouble_has_a_bounded_length() -> None:
    content = BeatContent("podsync", "i", 42)
    assert content.trouble("runtime", "x" * 20_000_000)
    assert content.beat(0.0, []).troubles == ("x" * MAX_TROUBLE_CHARACTERS,)
    assert not content.trouble("runtime", "x" * 20_000_000)


def test_a_beat_does_not_change_afterwards() -> None:
    content = BeatContent("podsync", "i", 42)
    beat = content.beat(0.0, [])
    content.progress("events", 7.0)
    assert beat.progress == {}


@pytest.mark.parametrize("now", [0.0, 7.001, 7.3, 7.5, 7.501, 7.75, 7.9999, 81234.25])
def test_beats_meet_at_whole_seconds_and_never_come_twice_or_late(now: float) -> None:
    left = next_beat_in(now)
    assert BEAT_SECONDS / 2 <= left <= 1.5 * BEAT_SECONDS
    assert (now + left) % BEAT_SECONDS == pytest.approx(0, abs=1e-6) or (now + left) % BEAT_SECONDS > 0.999999
