"""Whatever text a tenant, a container or a client sends, reading it takes time in proportion to its length.

Each function that takes such a text is given texts of up to 128 KiB that make careless patterns and expansions slow:
a unit repeated, between a beginning and an end, drawn by a seed. None may take longer than a tenth of a second of CPU
time, none may recurse without end, and what it raises is its own error.
"""

import random
from collections.abc import Callable, Iterator
from time import thread_time
from typing import Any

import pytest

from services.pleg.core.probe_spec import probes_of
from services.podsync.core.admission import sysctls
from services.podsync.core.cri import env_file, hosts_file
from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.cri.container_mounts import wanted_subpaths
from services.podsync.core.cri.environment import container_environment
from services.podsync.core.images import docker_config, image_reference, image_repository
from services.podsync.core.node.node_facts import NodeFacts
from services.server.core import go_text
from services.server.core.logs import log_format, log_query
from services.sources.core.yaml_document import UnreadableManifestError, read_document
from services.volume.core.files import payload_paths
from shared.config.durations import parse_duration
from shared.host import mountinfo
from shared.http_get.response import parse_head
from shared.model import quantity
from shared.podspec import expansion, field_ref, hashing, image_name, names, node_selector, ports
from shared.podspec.exec_space import MAX_STRING_BYTES
from shared.time.timestamps import parse_rfc3339
from shared.version import KUBERNETES_VERSION
from tests.unit.examples import examples

LONGEST = 128 << 10  # characters
MOST_SECONDS = 0.1
EXAMPLES = 60
UNITS = (
    "$(", "$(A)", "$$", "$", ")", "a", "aB", "a-", "-", "--", "_", "__", ".", "..", "../", "/", "//", "a/",
    "a.", ":", "::", "*", "*a", "?", "[", "]", "[a-z]", "[^", "\\", "\\1", '"', "'", "''", "A='b'\n", "#", "\n",
    "\r\n", "\r", " ", "\t", "=", "0", "9", "1e", "1e9", "-1", "+", ".0", "Ki", "E", "%", "%2", "%41", "&",
    "a=b&", ";", "{", "}", '{"a":', "[[", "- ", "&a ", "*a ", ": ", "a: ", "? ", "| ", "!!int ", "<<: ", "@",
    "@sha256:", "é", "\U0001f600", "\x00", "\x7f", "\u2028", "metadata.labels['", "']", "HTTP/1.1 ", "200 ",
    "a:b\r\n", "1h", "0.1s", "2026-01-01T00:00:00Z ", " stdout F ", "36 35 98:0 / /a rw - ",
)  # fmt: skip
POD: dict[str, Any] = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"enableServiceLinks": True}}


def texts(seed: str, number: int) -> Iterator[str]:
    """The same for the same seed."""
    draw = random.Random(seed)
    for unit in draw.sample(UNITS, min(number, len(UNITS))):
        begin, end = ("".join(draw.choices(UNITS, k=draw.randint(0, 2))) for _ in range(2))
        unit += draw.choice(("", "", draw.choice(UNITS)))
        length = draw.choice((100, 3_000, LONGEST))
        yield (begin + unit * (length // len(unit)) + end)[:LONGEST]


def _matches(text: str) -> None:
    half = len(text) // 2
    place = image_repository.location(text)
    image_repository.matches(text, text)
    image_repository.matches(text[:half], text[half:])
    image_repository.matches(place.host if place else text[:200], f"{'a' * 63}.example/app")
    image_repository.matches("*a" * 31, image_repository.repository(text))


def _environment(text: str) -> None:
    env = [{"name": f"A{n}", "value": f"$(A{n - 1}){text[:1_000]}$(A{n - 1})"} for n in range(40)]
    container_environment(
        POD,
        {"env": [{"name": "A", "value": text}, {"name": "B", "value": "$(A)$(A)"}, *env]},
        facts=NodeFacts(node_name="n", node_ips=(), memory_capacity=1, page_sizes=(), swap_controller=False),
        pod_ips=(),
        service_env={text: text},
        references={},
    )


def _field(text: str) -> None:
    for path in (text, f"metadata.annotations['{text}']", "metadata.annotations"):
        field_ref.is_field(path)
        field_ref.field_value({"metadata": {"annotations": {text: text}}}, path)


def _log(text: str) -> None:
    decoder = log_format.LogDecoder(log_format.LogFilter(timestamps=True, since=1))
    decoder.feed(b"2026-01-01T00:00:00Z stdout F " + text.encode())
    decoder.finish()


def _selector(text: str) -> None:
    requirement = {"key": "k", "operator": "Gt", "values": [text]}
    terms = [{"matchExpressions": [requirement]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    node_selector.matches_node({"spec": {"affinity": affinity}}, "n", {"k": text})


def _exec_probe(text: str) -> None:
    container = {"name": "c", "env": [{"name": "A", "value": text}], "livenessProbe": {"exec": {"command": [text] * 9}}}
    list(probes_of({"spec": {"containers": [container]}}))


READERS: dict[str, Callable[[str], object]] = {
    "expand": lambda text: expansion.expand(text, {"A": text}),
    "expand strictly": lambda text: expansion.expand_strictly(text, {"A": text}, longest=MAX_STRING_BYTES),
    "environment": _environment,
    "subpath": lambda text: wanted_subpaths({"volumeMounts": [{"name": "v", "subPathExpr": text}]}, {"A": text}),
    "exec probe": _exec_probe,
    "field": _field,
    "quantity": quantity.parse_quantity,
    "image": image_reference.with_default_tag,
    "image policy": image_name.default_pull_policy,
    "image pattern": _matches,
    "docker config": lambda text: docker_config.read_config_json(text.encode()),
    "docker auth": lambda text: docker_config.read_dockercfg(b'{"a":{"auth":"%s"}}' % text.encode("ascii", "ignore")),
    "environment file": lambda text: env_file.parse_env_file(text, {"none"}),
    "label": names.dns_label,
    "subdomain": names.dns_subdomain,
    "qualified name": names.qualified_name,
    "label value": names.label_value,
    "port name": names.port_name,
    "variable name": names.env_name,
    "address": names.ip_address,
    "port": lambda text: ports.container_port(text, {"ports": [{"name": text, "containerPort": 1}]}),
    "hash": lambda text: hashing.container_hash({"image": text, "name": "c"}),
    "back-off key": lambda text: hashing.backoff_key(POD, {"image": text, "resources": {"limits": {text: text}}}),
    "hosts file": lambda text: hosts_file.hosts_file(
        {"metadata": {"name": "p"}, "spec": {"hostname": text, "hostAliases": [{"ip": text, "hostnames": [text]}]}},
        ("10.0.0.1",), "cluster.local", text,
    ),
    "sysctl": lambda text: sysctls.refusal(
        {"spec": {"securityContext": {"sysctls": [{"name": text}]}}}, (6, 1), (), KUBERNETES_VERSION
    ),
    "node selector": _selector,
    "payload path": payload_paths.path_error,
    "mount table": mountinfo.parse,
    "time": parse_rfc3339,
    "duration": parse_duration,
    "HTTP answer": lambda text: parse_head(b"HTTP/1.1 200 OK\r\n" + text.encode()),
    "manifest": lambda text: read_document(text[:20_000].encode()),
    "query": go_text.parse_query,
    "number": go_text.parse_int64,
    "log query": log_query.parse_log_query,
    "log": _log,
}  # fmt: skip
REFUSED = (
    ValueError,
    ContainerConfigError,
    UnreadableManifestError,
    docker_config.DockerConfigError,
    image_reference.InvalidImageNameError,
    log_format.UnsupportedLogFormatError,
)


def _fixed_work() -> float:
    """Seconds of CPU time: other load on the machine makes this longer as well."""
    before = thread_time()
    sum(number * number for number in range(200_000))
    return thread_time() - before


@pytest.mark.share(4)
@pytest.mark.parametrize("reader", READERS)
def test_no_text_takes_long_to_read(reader: str) -> None:
    slow = {}
    for text in texts(reader, examples(EXAMPLES)):
        before = thread_time()
        try:
            READERS[reader](text)
        except REFUSED as error:
            assert not isinstance(error, RecursionError)
            assert len(str(error)) < 12 * LONGEST
        seconds = thread_time() - before
        if seconds > MOST_SECONDS and seconds > MOST_SECONDS * _fixed_work() / 0.02:
            slow[f"{text[:40]!r}… of {len(text)}"] = round(seconds, 3)
    assert slow == {}
