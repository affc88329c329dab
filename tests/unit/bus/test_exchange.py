"""What may be on its way to a process that does not read, and how a caller goes on once it reads."""

from bus import frames
from bus.exchange import MAX_UNREAD_BYTES, Exchange, Unread
from bus.frames import RequestHead

HEAD = RequestHead(v="2.9", client="podsync/1", id=7, type="Sum", deadline=5.0)


def test_bodies_fit_up_to_the_limit_and_again_once_they_are_read() -> None:
    unread = Unread()
    assert unread.fits(MAX_UNREAD_BYTES + 1), "one of any size, where nothing waits"
    unread.sent += MAX_UNREAD_BYTES - 10
    assert unread.fits(10) and not unread.fits(11)
    unread.note_read(5)
    assert unread.fits(15) and not unread.fits(16)
    unread.note_read(3)
    assert unread.fits(15), "an older position takes nothing back"
    unread.note_read(unread.sent)
    assert unread.fits(MAX_UNREAD_BYTES + 1)


def test_a_body_that_does_not_fit_is_sent_once_the_other_side_answers_the_reminder_in_its_place() -> None:
    exchange = Exchange(HEAD, b"{}")
    for _ in range(2):
        assert frames.read_request(exchange.next(fits=False)) == (HEAD, None)
    assert exchange.unknown()
    head, body = frames.read_request(exchange.next(taken=4711))
    assert (head.id, head.taken, body) == (7, 4711, b"{}")
    assert not exchange.unknown(), "the answer to the other reminder"
