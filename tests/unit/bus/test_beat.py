"""What a beat says."""

from bus.beat import Pulse
from bus.ledger import Ledger


def test_a_beat_carries_numbers_progress_and_troubles() -> None:
    pulse = Pulse("podsync", "i", 42)
    ledger = Ledger("pods.status", "i")
    ledger.put("a", b"1")
    pulse.progress("events", 7.0)
    pulse.trouble("runtime", "runtime not\nreachable")
    beat = pulse.beat(8.0, [ledger])
    assert (beat.service, beat.incarnation, beat.pid, beat.sent_at, beat.protocol) == ("podsync", "i", 42, 8.0, "1.0")
    assert beat.streams == {"pods.status": 1}
    assert beat.progress == {"events": 7.0}
    assert beat.troubles == ("runtime not reachable",)


def test_a_trouble_is_told_when_it_changes_and_gone_when_cleared() -> None:
    pulse = Pulse("podsync", "i", 42)
    assert pulse.trouble("runtime", "gone")
    assert not pulse.trouble("runtime", "gone")
    assert pulse.trouble("runtime", None)
    assert not pulse.trouble("runtime", None)
    assert pulse.beat(0.0, []).troubles == ()


def test_a_beat_does_not_change_afterwards() -> None:
    pulse = Pulse("podsync", "i", 42)
    beat = pulse.beat(0.0, [])
    pulse.progress("events", 7.0)
    assert beat.progress == {}
