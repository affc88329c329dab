"""Parses the probes of a container's spec: handler, timing, thresholds (pods.md 10.1, 10.3)."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from shared.model.objects import Object
from shared.podspec.exec_space import MAX_SPACE_BYTES, MAX_STRING_BYTES, ExecSpace, TooLongError
from shared.podspec.expansion import expand
from shared.podspec.ports import container_port
from shared.podspec.resources import is_sidecar

_H2C, _GRPC_TLS = PROBE_GATES = ("H2CContainerProbe", "GRPCContainerProbeTLS")


class ProbeKind(StrEnum):
    """Names a kind of probe, and its field in ProbeResults."""

    LIVENESS = "liveness"
    READINESS = "readiness"
    STARTUP = "startup"

    @property
    def label(self) -> str:
        """The name in events."""
        return self.value.capitalize()


class ExecHandler(Struct, frozen=True):
    """Runs a command in the container; a text is the reason why there is no command."""

    command: tuple[str, ...] | str


class HttpHandler(Struct, frozen=True):
    """Sends a GET; `host` "" = the pod's address. `port` is a number or the reason why there is none."""

    scheme: str
    host: str
    port: int | str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    http2: bool = False  # HTTP/2 without TLS


class TcpHandler(Struct, frozen=True):
    """Opens a connection; `host` and `port` as in HttpHandler."""

    host: str
    port: int | str


class GrpcHandler(Struct, frozen=True):
    """Requests the health of `service`, "" = of the server, at the pod's address."""

    port: int | str
    service: str
    tls: bool = False


Handler = ExecHandler | HttpHandler | TcpHandler | GrpcHandler


class ProbeSpec(Struct, frozen=True, kw_only=True):
    """Has one probe of one container. Times are seconds; thresholds count results in a row."""

    kind: ProbeKind
    container: str
    sidecar: bool
    handler: Handler | None  # None = the probe names none
    initial_delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3

    @property
    def field_path(self) -> str:
        """The path of the container in the pod, for events."""
        return f"spec.{'initContainers' if self.sidecar else 'containers'}{{{self.container}}}"


def probes_of(pod: Object, gates: frozenset[str] = frozenset()) -> Iterator[ProbeSpec]:
    """Yield the probes of regular containers and sidecars; a value that is no probe is left out. `gates`: those of
    PROBE_GATES that are on in `feature_gates`; the field of another one counts for nothing."""
    spec = _mapping(pod.get("spec"))
    regular = [(container, False) for container in _mappings(spec.get("containers"))]
    # The commands of all probes of a pod together are bounded, because they are kept as long as the pod.
    space = ExecSpace()
    sidecars = [(container, True) for container in _mappings(spec.get("initContainers")) if is_sidecar(container)]
    for container, sidecar in (*regular, *sidecars):
        name = container.get("name")
        if not isinstance(name, str) or not name:
            continue
        for kind in ProbeKind:
            probe = _mapping(container.get(f"{kind}Probe"))
            if probe:
                yield ProbeSpec(
                    kind=kind,
                    container=name,
                    sidecar=sidecar,
                    handler=_handler(probe, container, space, gates),
                    initial_delay=_number(probe, "initialDelaySeconds", 0, minimum=0),
                    period=_number(probe, "periodSeconds", 10),
                    timeout=_number(probe, "timeoutSeconds", 1),
                    success_threshold=_number(probe, "successThreshold", 1),
                    failure_threshold=_number(probe, "failureThreshold", 3),
                )


def _handler(
    probe: Mapping[str, Any], container: Mapping[str, Any], space: ExecSpace, gates: frozenset[str]
) -> Handler | None:
    if isinstance(action := probe.get("exec"), dict):
        return ExecHandler(_command(action.get("command"), container, space))
    if isinstance(action := probe.get("httpGet"), dict):
        return HttpHandler(
            scheme=str(action.get("scheme") or "HTTP").lower(),
            host=str(action.get("host") or ""),
            port=container_port(action.get("port"), container),
            path=str(action.get("path") or ""),
            headers=tuple(
                (str(header.get("name") or ""), str(header.get("value") or ""))
                for header in _mappings(action.get("httpHeaders"))
            ),
            http2=_H2C in gates and action.get("protocol") == "HTTP2",
        )
    if isinstance(action := probe.get("tcpSocket"), dict):
        return TcpHandler(host=str(action.get("host") or ""), port=container_port(action.get("port"), container))
    if isinstance(action := probe.get("grpc"), dict):
        tls = _GRPC_TLS in gates and action.get("mode") == "TLS"
        return GrpcHandler(container_port(action.get("port"), {}), str(action.get("service") or ""), tls)
    return None


def _command(listed: object, container: Mapping[str, Any], space: ExecSpace) -> tuple[str, ...] | str:
    # Only values in the spec itself: for a probe the kubelet does not read the others, which are empty.
    environment = {str(entry.get("name")): str(entry.get("value") or "") for entry in _mappings(container.get("env"))}
    words = []
    for index, part in enumerate(listed if isinstance(listed, list) else ()):
        try:
            word = expand(str(part), environment)
        except TooLongError:
            return f"exec.command[{index}] is too long: the kernel takes {MAX_STRING_BYTES} bytes of one argument"
        try:
            space.take(word)
        except TooLongError:
            return f"exec.command[{index}] does not fit: the exec probes of a pod have {MAX_SPACE_BYTES} bytes together"
        words.append(word)
    return tuple(words)


def _number(probe: Mapping[str, Any], key: str, default: int, *, minimum: int = 1) -> int:
    value = probe.get(key)
    return value if isinstance(value, int) and value >= minimum else default


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    return (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else iter(())
