"""docs/limits.md has the numbers for answers of the API server that the code has."""

from pathlib import Path

from services.sources.controllers import bounded_objects
from services.sources.controllers.volume_claims import UNBOUND_READS_SHARE
from shared.http_get import http2_frames
from shared.kube import http2_connection, http2_session
from shared.kube.interface import MAX_RETRY_AFTER_SECONDS

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"


def test_the_row_for_retry_after_is_what_the_code_has() -> None:
    seconds = f"{MAX_RETRY_AFTER_SECONDS:.0f}"
    row = f"{seconds} | the request is sent again after {seconds} s |"
    assert f"\n| seconds for which a Retry-After holds requests back | {row}\n" in PAGE.read_text()


def test_the_rows_for_watches_are_what_the_code_has() -> None:
    frames = f"{http2_frames.MAX_FRAME_BYTES}; {http2_session._MAX_HEADER_BYTES >> 10} KiB"
    pings = f"{http2_connection.PING_AFTER_SECONDS:.0f}; {http2_connection.MAX_PONG_SECONDS:.0f}"
    watched = f"{bounded_objects.MAX_WATCHES}; {bounded_objects.MAX_WATCHES_WITHOUT_HTTP2}"
    share = UNBOUND_READS_SHARE
    rows = (
        f"| Secrets and ConfigMaps that are watched; without HTTP/2 | {watched} |",
        f"| share of the rate limit for claims that are not bound (`volume_claims.py` of sources) | {share} |",
        f"| watches on one connection | as the API server permits; {http2_session.MAX_STREAMS} |",
        f"| bytes of a watch that were received and not read | {http2_session.STREAM_WINDOW_BYTES} |",
        f"| bytes of a frame; of the header of an answer | {frames} |",
        f"| seconds without a byte until a ping; until its answer | {pings} |",
        f"| bytes that the API server does not read | {http2_connection._MAX_UNSENT_BYTES >> 20} MiB |",
    )
    assert not [row for row in rows if row not in PAGE.read_text()]
