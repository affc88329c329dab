"""Probes as a pod's spec defines them, also with unusual values."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.pleg.core.probe_outcome import Outcome, event_of
from services.pleg.core.probe_spec import ExecHandler, GrpcHandler, HttpHandler, ProbeKind, TcpHandler, probes_of
from services.pleg.core.probe_worker import Verdict


def probe(handler: dict[str, Any], **container: Any) -> Any:
    pod = {"spec": {"containers": [{"name": "c", "livenessProbe": handler, **container}]}}
    (found,) = probes_of(pod)
    return found


def test_defaults_are_the_kubelets() -> None:
    found = probe({"tcpSocket": {"port": 80}})
    assert (found.initial_delay, found.period, found.timeout) == (0, 10, 1)
    assert (found.success_threshold, found.failure_threshold) == (1, 3)
    assert found.field_path == "spec.containers{c}"


def test_sidecars_have_probes_and_plain_init_containers_have_none() -> None:
    probed = {"readinessProbe": {"exec": {"command": ["true"]}}, "startupProbe": {"exec": {"command": ["true"]}}}
    pod = {
        "spec": {
            "initContainers": [{"name": "i", **probed}, {"name": "s", "restartPolicy": "Always", **probed}],
            "containers": [{"name": "c", **probed}],
        }
    }
    assert [(p.container, p.kind, p.field_path) for p in probes_of(pod)] == [
        ("c", ProbeKind.READINESS, "spec.containers{c}"),
        ("c", ProbeKind.STARTUP, "spec.containers{c}"),
        ("s", ProbeKind.READINESS, "spec.initContainers{s}"),
        ("s", ProbeKind.STARTUP, "spec.initContainers{s}"),
    ]


def test_a_command_is_expanded_with_written_out_values_only() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    found = probe({"exec": {"command": ["echo", "$(A)-$(B)-$(C)-$$(A)"]}}, env=env)
    assert found.handler == ExecHandler(("echo", "1--$(C)-$(A)"))


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        (8080, 8080),
        ("web", 8081),
        ("8082", 8082),
        ("nope", 'strconv.Atoi: parsing "nope": invalid syntax'),
        (0, "invalid port number: 0"),
        (65536, "invalid port number: 65536"),
        (None, "invalid port number: None"),
    ],
)
def test_ports_by_number_name_and_text(port: Any, expected: int | str) -> None:
    ports = [{"name": "web", "containerPort": 8081}]
    assert probe({"tcpSocket": {"port": port}}, ports=ports).handler == TcpHandler("", expected)


def test_an_http_handler() -> None:
    headers = [{"name": "X-A", "value": "1"}, {"name": "Host", "value": "h"}]
    handler = {"httpGet": {"scheme": "HTTPS", "port": 443, "path": "/x?y", "host": "h", "httpHeaders": headers}}
    assert probe(handler).handler == HttpHandler("https", "h", 443, "/x?y", (("X-A", "1"), ("Host", "h")))


def test_a_grpc_handler() -> None:
    assert probe({"grpc": {"port": 1}, "periodSeconds": 5}).handler == GrpcHandler(1, "")
    assert probe({"grpc": {"port": 2, "service": "db"}}).handler == GrpcHandler(2, "db")
    assert probe({"grpc": {"port": 0}}).handler == GrpcHandler("invalid port number: 0", "")


def test_http_2_and_tls_count_with_their_feature_gates() -> None:
    pod = {
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "livenessProbe": {"httpGet": {"port": 1, "protocol": "HTTP2"}},
                    "readinessProbe": {"grpc": {"port": 2, "mode": "TLS"}},
                    "startupProbe": {"httpGet": {"port": 3, "protocol": "HTTP1"}},
                }
            ]
        }
    }

    def found(*gates: str) -> list[Any]:
        return [spec.handler for spec in probes_of(pod, frozenset(gates))]

    plain = [HttpHandler("http", "", 1, ""), GrpcHandler(2, ""), HttpHandler("http", "", 3, "")]
    assert found() == plain
    assert found("H2CContainerProbe") == [HttpHandler("http", "", 1, "", http2=True), *plain[1:]]
    assert found("GRPCContainerProbeTLS") == [plain[0], GrpcHandler(2, "", tls=True), plain[2]]


def test_a_probe_without_a_handler_is_one_that_cannot_be_tried() -> None:
    assert probe({"periodSeconds": 5}).handler is None


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["exec", "httpGet", "tcpSocket", "grpc", "command", "port", "httpHeaders", "name", "value", "env"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@pytest.mark.long
@given(json, json, json)
@example({"exec": {"command": True}}, None, None)
def test_no_spec_is_odd_enough_to_raise(handler: Any, env: Any, ports: Any) -> None:
    container = {"name": "c", "livenessProbe": handler, "env": env, "ports": ports}
    for pod in ({"spec": {"containers": [container]}}, {"spec": {"initContainers": handler}}, {"spec": handler}):
        list(probes_of(pod))


@pytest.mark.parametrize(
    ("verdict", "event"),
    [
        (Verdict.SUCCESS, None),
        (Verdict.FAILURE, ("Unhealthy", "Liveness probe failed: out")),
        (Verdict.WARNING, ("ProbeWarning", "Liveness probe warning: out")),
        (Verdict.ERROR, ("Unhealthy", "Liveness probe errored and resulted in unknown state: out")),
    ],
)
def test_the_words_of_events(verdict: Verdict, event: tuple[str, str] | None) -> None:
    assert event_of(ProbeKind.LIVENESS, Outcome(verdict, "out")) == event


def test_an_exec_probe_whose_command_no_kernel_takes_is_an_error_with_the_reason() -> None:
    probe = {"exec": {"command": ["true", "$(A)$(A)"]}}
    (found,) = probes_of(
        {
            "spec": {
                "containers": [{"name": "c", "env": [{"name": "A", "value": "x" * 100_000}], "livenessProbe": probe}]
            }
        }
    )
    assert isinstance(found.handler, ExecHandler)
    assert found.handler.command == "exec.command[1] is too long: the kernel takes 131071 bytes of one argument"


def test_the_exec_probes_of_a_pod_keep_a_bounded_number_of_bytes() -> None:
    container = {
        "env": [{"name": "A", "value": "x" * 100_000}],
        "readinessProbe": {"exec": {"command": ["$(A)"] * 15}},
    }
    found = list(probes_of({"spec": {"containers": [{**container, "name": f"c{n}"} for n in range(20)]}}))
    commands = [probe.handler.command for probe in found if isinstance(probe.handler, ExecHandler)]
    assert len(commands[0]) == 15
    assert commands[-1] == "exec.command[0] does not fit: the exec probes of a pod have 2097152 bytes together"
