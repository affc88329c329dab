"""What begins an outage for status, and what ends it."""

from services.status.core.outage import MAX_FAILURES, Outage


def test_a_heartbeat_that_fails_begins_an_outage_and_an_answer_ends_it() -> None:
    outage = Outage()
    outage.failed("refused", by_heartbeat=True)
    assert outage.error == "refused"
    outage.reached()
    assert outage.error == ""


def test_one_lost_connection_of_another_request_is_no_outage() -> None:
    outage = Outage()
    for _ in range(5):
        outage.failed("reset", by_heartbeat=False)
        assert outage.error == ""
        outage.reached()
    for _ in range(MAX_FAILURES):
        outage.failed("reset", by_heartbeat=False)
    assert outage.error == "reset"
