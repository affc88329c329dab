"""docs/limits.md has the numbers that the code has; those for pods are compared in tests/unit/podspec."""

import pytest

from bus.messages import usage
from services.bootstrap.core import config_source, node_config
from services.cli.agent import support_bundle as bundle
from services.cli.what_if import answers as what_if
from services.frame import debugging, sampling
from services.pleg.adapters import cgroup_reader, disk_usage, file_statuses, usage_source
from services.pleg.controllers import file_usage
from services.pleg.core import network_counters
from services.podsync.controllers import pod_previews
from services.server.adapters import accepting, http_limits, remote_command, system_log_files
from services.server.controllers import (
    debug_endpoints,
    explanations,
    pod_resources,
    reviews,
    system_logs,
    usage_endpoints,
)
from services.server.core import routes
from services.server.core.access import bearer
from services.server.core.listening.connections import HEALTHZ, LOCAL, MAIN, READ_ONLY
from services.server.core.logs import node_log_query
from services.sources.adapters import apply_socket, manifest_url
from services.sources.controllers import bounded_objects, fetched_objects, read_places, volume_claims
from services.sources.core import applied_object, reflector, url_source, yaml_document
from services.volume.controllers import volume_usage
from shared.agent import apply_api
from shared.http_get import http2_frames
from shared.kube import http2_connection, http2_session, interface
from shared.plugin_grpc import serving
from shared.podspec.static_pod import MAX_POD_BYTES
from shared.tracing import otlp, span, tracer
from tests.architecture.checkout import text_of

LISTENERS = MAIN, READ_ONLY, HEALTHZ, LOCAL
READS = "such reads at once of claims; of Secrets and ConfigMaps; further ones of each that have taken over"
OFFLINE = "the same of a node that may run pods from a record, because the API server"
# What begins a row, and the cells that follow it.
ROWS: list[tuple[object, ...]] = [
    # the configuration that a Node names
    ("bytes of all values of the ConfigMap", f"{config_source.MAX_CONFIG_MAP_BYTES >> 20} MiB"),
    ("keys of the ConfigMap", config_source._MAX_KEYS),
    (
        f"starts of one service within the trial of {node_config.TRIAL_SECONDS:.0f} s, without an end on request",
        node_config.MAX_TRIAL_STARTS,
    ),
    # answers of the API server
    (
        "seconds for which a Retry-After holds requests back",
        f"{interface.MAX_RETRY_AFTER_SECONDS:.0f}",
        f"the request is sent again after {interface.MAX_RETRY_AFTER_SECONDS:.0f} s",
    ),
    (
        "Secrets and ConfigMaps that are watched; without HTTP/2",
        f"{bounded_objects.MAX_WATCHES}; {bounded_objects.MAX_WATCHES_WITHOUT_HTTP2}",
    ),
    (
        "share of the rate limit for claims that are not bound (`volume_claims.py` of sources)",
        volume_claims.UNBOUND_READS_SHARE,
    ),
    ("watches on one connection", f"as the API server permits; {http2_session.MAX_STREAMS}"),
    ("bytes of a watch that were received and not read", http2_session.STREAM_WINDOW_BYTES),
    (
        "bytes of a frame; of the header of an answer",
        f"{http2_frames.MAX_FRAME_BYTES}; {http2_session._MAX_HEADER_BYTES >> 10} KiB",
    ),
    (
        "seconds without a byte until a ping; until its answer",
        f"{http2_connection.PING_AFTER_SECONDS:.0f}; {http2_connection.MAX_PONG_SECONDS:.0f}",
    ),
    ("bytes that the API server does not read", f"{http2_connection._MAX_UNSENT_BYTES >> 20} MiB"),
    (
        f"{READS} {read_places.SLOW_AFTER_SECONDS:.0f} s (`services/sources/controllers/read_places.py`)",
        f"{volume_claims.MAX_READS}; {fetched_objects.MAX_READS}; {read_places.MAX_SLOW_READS}",
    ),
    (
        "seconds for the answer to a single read (a claim, a Secret that is not watched)",
        f"{interface.READ_TIMEOUT_SECONDS:.0f}, as long as an API server works on one",
    ),
    (
        "seconds between two probes of sources (the list of our Node)",
        "{}, then {:.0f}; by chance up to twice as long".format(
            ", ".join(f"{reflector.PROBES.delay(failures):.0f}" for failures in (1, 2, 3)), reflector.PROBES.delay(9)
        ),
    ),
    (
        f"{OFFLINE} has not listed them since its start (`offlinePods`)",
        f"{reflector.PROMPT_PROBES.delay(1):.1f} to {reflector.MAX_PROMPT_PROBE_PAUSE_SECONDS:.0f}, by chance",
    ),
    ("seconds over which the watches of one node resume after it was noticed", f"{reflector.SPREAD_SECONDS:.0f}"),
    # manifests
    ("seconds from the connection to the last byte", f"{manifest_url.TIMEOUT_SECONDS:.0f}"),
    (
        "bytes of the document; redirects; pods of it",
        f"{yaml_document.MAX_BYTES >> 20} MiB; {manifest_url.MAX_REDIRECTS}; {url_source.MAX_PODS}",
    ),
    ("values (scalars, lists and maps) of the document, also of a file", yaml_document.MAX_VALUES, "the same"),
    ("bytes of one pod with its defaults, also of a file's", f"{MAX_POD_BYTES >> 20} MiB", "the same"),
    ("bytes of an applied object", apply_api.MAX_APPLIED_BYTES, 413),
    ("bytes of the data of a ConfigMap or Secret", applied_object.MAX_DATA_BYTES, 422),
    ("objects; bytes of all together", f"{applied_object.MAX_FILES}; {applied_object.MAX_BYTES >> 20} MiB", 403),
    (
        "seconds for the body of a request; bodies at once",
        f"{apply_socket.MAX_BODY_SECONDS:.0f}; {apply_socket.MAX_BODIES}",
        "408; a request waits",
    ),
    # usage
    ("bytes of a cgroup file", f"{cgroup_reader.MAX_FILE_BYTES >> 10} KiB"),
    ("interfaces of a network namespace", network_counters.MAX_INTERFACES),
    (
        "files of a pod with several links that are counted once; links of further ones count by shares",
        disk_usage.MAX_LINKED_FILES,
    ),
    ("share of the time in which the files of a pod are measured", f"1/{file_usage.PAUSE_FACTOR}"),
    ("seconds that the next pod waits for one whose files are measured", f"{file_usage.MAX_NEXT_SECONDS:.0f}"),
    (
        "seconds of a turn, in which the files of a pod are counted; pods that have a turn at the same time",
        f"{file_usage.TURN_SECONDS:.0f}; {usage_source.MAX_COUNTS}",
    ),
    (
        "parts of the volumes of a pod that are left for a later turn, because a directory in it grows or is large",
        file_statuses.MAX_ASIDE_PARTS,
    ),
    (
        "seconds that a count lasts, or twice as long as the last one, at most; such pods with 1/20 of the time",
        f"{file_usage.LONG_SECONDS:.0f}; {file_usage.MAX_COUNT_SECONDS:.0f}; {file_usage.LONG_PODS}",
    ),
    ("bytes or inodes in a figure", f"2^{usage.MAX_AMOUNT.bit_length()} - 1"),
    (
        "requests at once for the figures that volume's plugins read (CSI, NFS, local)",
        file_usage.MAX_VOLUME_REQUESTS,
    ),
    (
        "volumes that plugins read at once; of one CSI driver, or all of NFS",
        f"{volume_usage.MAX_READINGS}; {volume_usage.MAX_READINGS_PER_SERVER}",
    ),
    (
        "seconds that such figures of a pod are waited for; seconds of one reading",
        f"{volume_usage.MAX_WAIT_SECONDS:.0f}; {volume_usage.TIMEOUT_SECONDS:.0f}",
    ),
    (
        "seconds that a request waits for a reading; for new figures of files",
        f"{usage_endpoints.TIMEOUT_SECONDS:.0f}; {file_usage.MAX_REFRESH_SECONDS:.0f}",
    ),
    ("bytes of a form to `/stats/summary`", usage_endpoints.MAX_FORM_BYTES),
    # requests
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
    # traces
    ("spans of a process that wait for the collector", otlp.MAX_WAITING_SPANS),
    (
        "spans in a request to the collector; seconds for its answer",
        f"{otlp.MAX_BATCH_SPANS}; {otlp.TIMEOUT_SECONDS:.0f}",
    ),
    ("pods whose traces a process keeps", tracer.MAX_PODS),
    ("characters of an attribute", span.MAX_TEXT_CHARACTERS),
]


def test_a_row_is_what_the_code_has(subtests: pytest.Subtests) -> None:
    page = text_of("docs/limits.md")
    for row in ROWS:
        with subtests.test(str(row[0])):
            assert f"\n| {' | '.join(map(str, row))} |" in page
    assert f"up to {reflector.MAX_PROBE_PAUSE_SECONDS:.0f} s after the return" in page


def test_a_table_has_the_limits_of_the_code_alone() -> None:
    mebibytes = (bundle.MAX_ARCHIVE_BYTES, bundle._MAX_LOG_BYTES, bundle._MAX_STORIES_BYTES)
    assert limits("Support bundle") == [f"{size >> 20} MiB" for size in mebibytes]
    seconds = [f"{what_if.TIMEOUT_SECONDS:g}", f"{pod_previews.TIMEOUT_SECONDS:g}"]
    assert limits("Pods of what-if") == [f"{what_if.MAX_FILE_BYTES >> 20} MiB", f"{what_if.MAX_PODS}", *seconds]
    assert 2 * pod_previews.TIMEOUT_SECONDS < what_if.TIMEOUT_SECONDS


def limits(heading: str) -> list[str]:
    """Return the second column of the table below the heading."""
    section = text_of("docs/limits.md").partition(f"\n### {heading}\n")[2].partition("\n###")[0]
    return [line.split("|")[2].strip() for line in section.splitlines() if line.startswith("| ")][1:]
