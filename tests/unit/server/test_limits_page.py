"""docs/limits.md has the numbers that the code has."""

from pathlib import Path

import pytest

from services.frame import debugging, sampling
from services.server.adapters import accepting, http_limits, remote_command, system_log_files
from services.server.controllers import debug_endpoints, explanations, pod_resources, reviews, system_logs
from services.server.core import routes
from services.server.core.access import bearer
from services.server.core.listening.connections import HEALTHZ, LOCAL, MAIN, READ_ONLY
from services.server.core.logs import node_log_query
from shared.plugin_grpc import serving

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"
LISTENERS = MAIN, READ_ONLY, HEALTHZ, LOCAL


@pytest.mark.parametrize(
    "row",
    [
        ("unauthorized connections", *(limits.unauthorized for limits in LISTENERS)),
        ("of one address", *(limits.unauthorized_of_address for limits in LISTENERS)),
        (
            "bytes they have sent, unanswered, together",
            *(f"{limits.unauthorized_bytes >> 20} MiB" for limits in LISTENERS),
        ),
        (
            f"answers over {http_limits.LARGE_ANSWER_BYTES >> 10} KiB that are being sent to them",
            *(limits.large_answers for limits in LISTENERS),
        ),
        ("authorized connections", MAIN.authorized),
        ("of one address", MAIN.authorized_of_address),
        ("exec, attach, port-forward, run and logs of pods that are open", routes.MAX_STREAMS),
        (
            "of one namespace",
            "as many as are free for others: {}, then {}, {} …".format(*(routes.MAX_STREAMS >> n for n in (1, 2, 3))),
        ),
        ("a TLS handshake", f"{accepting.MAX_HANDSHAKE_SECONDS:.0f} s"),
        ("the head of a request", f"{http_limits.MAX_HEAD_SECONDS:.0f} s"),
        ("header fields", http_limits.MAX_HEADER_FIELDS),
        ("bytes of a head", f"1 MiB and {(http_limits.MAX_HEAD_BYTES - (1 << 20)) >> 10} KiB"),
        ("bytes of later requests that are read while one is answered", f"{http_limits.MAX_AHEAD_BYTES >> 10} KiB"),
        ("between two requests", f"{http_limits.MAX_IDLE_SECONDS:.0f} s"),
        ("a request and its answer, upgrades aside", f"{http_limits.MAX_REQUEST_SECONDS / 3600:.0f} h"),
        (
            "exec or attach over WebSocket v5 without a message, pings aside",
            f"{remote_command.MAX_IDLE_SECONDS / 3600:.0f} h (the kubelet's)",
        ),
        ("bytes of a bearer token, which is ASCII", f"{bearer.MAX_TOKEN_BYTES >> 10} KiB"),
        (
            "tokens under review; for one address",
            f"{reviews.MAX_TOKEN_REVIEWS}; {reviews.MAX_TOKEN_REVIEWS_OF_ADDRESS}",
        ),
        (
            "access reviews under way; for one address",
            f"{reviews.MAX_ACCESS_REVIEWS}; {reviews.MAX_ACCESS_REVIEWS_OF_ADDRESS}",
        ),
        (
            "requests that are answered at once; that wait",
            f"{explanations.MAX_THREADS}; {explanations.MAX_WAITING_REQUESTS}",
        ),
        ("entries of a listed directory", system_log_files.MAX_ENTRIES),
        ("queries of the journal at once", system_logs.MAX_QUERIES),
        ("seconds of a profile; profiles of a process at once", f"{debugging.MAX_PROFILE_SECONDS:.0f}; 1"),
        ("different stacks of a profile; frames of a stack", f"{sampling.MAX_STACKS}; {sampling.MAX_FRAMES}"),
        ("characters of a dump of stacks", f"{debugging.MAX_TEXT_CHARACTERS} each of threads and tasks"),
        ("bytes sent to `/debug/flags/v`", debug_endpoints.MAX_BODY_BYTES),
        ("calls in a second; at once after a pause", f"{pod_resources.QPS}; {pod_resources.BURST} (the kubelet's)"),
        ("calls in progress", serving.MAX_CALLS),
        ("bytes of a request", f"{serving.MAX_REQUEST_BYTES >> 10} KiB"),
        ("characters of a pattern", node_log_query.MAX_PATTERN_CHARACTERS),
    ],
    ids=lambda row: row[0],
)
def test_a_row_of_the_page_is_what_the_code_has(row: tuple[str, ...]) -> None:
    assert "\n| " + " | ".join(map(str, row)) + " |" in PAGE.read_text()
