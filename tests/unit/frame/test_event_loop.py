"""What the event loop reports of connections: a peer that resets fills no log, and a bug keeps its traceback."""

import logging
import ssl

import pytest

from services.frame.event_loop import new_event_loop

TLS = {"message": "Fatal error on SSL protocol", "transport": None, "protocol": None}
CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is closed"


def report(*errors: Exception) -> None:
    """Each error reaches the loop of a service, as the TLS protocol of uvloop reports it."""
    loop = new_event_loop()
    for error in errors:
        loop.call_exception_handler({**TLS, "exception": error})
    loop.close()


def test_thousands_of_reset_connections_are_one_line_of_debugging(caplog: pytest.LogCaptureFixture) -> None:
    errors = RuntimeError(CLOSED), ConnectionResetError(104, "Connection reset by peer"), ssl.SSLError(1, "bad record")
    with caplog.at_level(logging.DEBUG):
        report(*errors * 1000)
    lines = [record for record in caplog.records if record.name != "asyncio" or record.levelno > logging.DEBUG]
    assert [(line.levelname, line.exc_info) for line in lines] == [("DEBUG", None)]


@pytest.mark.parametrize("error", [AttributeError("x"), RuntimeError("x")])
def test_a_bug_in_a_protocol_is_reported_with_its_traceback(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    report(error)
    assert [line.levelname for line in caplog.records if line.exc_info] == ["ERROR"]
