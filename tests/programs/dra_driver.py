"""A driver of dynamic resource allocation with faults on request. `python -m tests.programs.dra_driver ROOT NAME` runs
it as a process below the root directory of an agent.

What it has prepared, its CDI specification files, its faults and the log of calls are files, so that they can be
changed while it runs, and survive it.
"""

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from shared.plugin_grpc import dra_health_pb2, registration_pb2
from shared.plugin_grpc import dra_pb2 as api

V1, V1BETA1 = "v1.DRAPlugin", "v1beta1.DRAPlugin"
HEALTH_V1, HEALTH_V1ALPHA1 = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
WATCH = "NodeWatchResources"
_POLL_SECONDS = 0.02


class DraDriver:
    """Serves a driver. `root`: the root directory of the agent; `services`: those that it names and serves; `socket`:
    name of its sockets, another one for each instance of a rolling update; `cdi`: where its CDI specifications are.

    Each claim has the devices that `set_devices` gave it, else one device, which has the name of the claim and serves
    all of its requests. A fault of a method: "hang" (until the driver ends), "die" (before it does anything), "die
    after" (when it has done its work, before it answers), "slow" (half a second), "lie" (a claim that was not
    requested), "skip" (no claim), "error" (an error of two lines for each claim), "long" (a name of 5000 characters),
    "garbage" (no message), "answers twice", or the name of a gRPC code.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        *,
        services: tuple[str, ...] = (V1, V1BETA1),
        socket: str = "dra.sock",
        cdi: Path | None = None,
        die: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGKILL),
    ) -> None:
        self.name, self.services = name, services
        self.directory = root / "plugins" / name
        self.socket = self.directory / socket
        self.registration = root / "plugins_registry" / f"{name}-{socket}"
        self.cdi = cdi or self.directory / "cdi"  # of its specification files
        self.statuses: list[tuple[bool, str]] = []
        self._die, self._ended = die, threading.Event()
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="dra driver")
        self._servers: list[Any] = []
        self._lock = threading.Lock()
        for path in (self.directory, self.cdi):
            path.mkdir(parents=True, exist_ok=True)

    def fault(self, method: str, what: str = "") -> None:
        """Let each call of the method fail so; "" = none fails."""
        _write(self.directory / "faults.json", {**_read(self.directory / "faults.json"), method: what})

    def set_devices(self, claim: str, devices: list[dict[str, Any]]) -> None:
        """Answer with these devices (fields of the message) for the claim of this name."""
        _write(self.directory / "devices.json", {**_read(self.directory / "devices.json"), claim: devices})

    def set_health(self, device: str, health: str, message: str = "", timeout: int = 0) -> None:
        """Report this health of a device from now on: HEALTHY, UNHEALTHY or UNKNOWN."""
        path = self.directory / "health.json"
        _write(path, {**_read(path), device: [health, message, timeout]})

    def calls(self, method: str) -> list[list[str]]:
        """Return the names of the claims of each call of the method by all processes."""
        path = self.directory / "calls"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [names for name, _, names in lines if name == method]

    def versions(self) -> list[str]:
        """Return the service of each call."""
        path = self.directory / "calls"
        return [json.loads(line)[1] for line in path.read_text().splitlines()] if path.exists() else []

    def prepared(self) -> dict[str, str]:
        """Return the claims that are prepared: UID -> name."""
        return {uid: str(name) for uid, name in _read(self.directory / "prepared.json").items()}

    def start(self) -> None:
        """Serve, and appear below `plugins_registry`, also where an earlier process left its sockets."""
        for path in (self.socket, self.registration):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        health = {name: self._health_handlers(name) for name in self.services if name in (HEALTH_V1, HEALTH_V1ALPHA1)}
        calls = {f"k8s.io.kubelet.pkg.apis.dra.{name}": self._handlers(name) for name in (V1, V1BETA1)}
        named = {name: calls[name] for name in calls if name.split("dra.", 1)[1] in self.services}
        self._serve(self.socket, {**named, **health})
        answer = registration_pb2.PluginInfo(
            type="DRAPlugin", name=self.name, endpoint=str(self.socket), supported_versions=self.services
        )

        def notify(request: bytes, context: Any) -> bytes:
            status = registration_pb2.RegistrationStatus.FromString(request)
            self.statuses.append((status.plugin_registered, status.error))
            return b""

        handlers = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(lambda request, context: answer.SerializeToString()),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(notify),
        }
        self._serve(self.registration, {"pluginregistration.Registration": handlers})

    def remove(self) -> None:
        """Take the socket below `plugins_registry` away, as a driver does that ends in order."""
        self.registration.unlink(missing_ok=True)

    def lose_cdi(self) -> None:
        """Remove the specification files, as a reboot does."""
        for path in self.cdi.iterdir():
            path.unlink()

    def stop(self) -> None:
        """End as a killed process does: the sockets stay."""
        self._ended.set()
        for server in self._servers:
            server.stop(0).wait()
        self._threads.shutdown(cancel_futures=True)

    def run(self) -> None:
        """Serve until the process is killed."""
        self.start()
        while True:
            time.sleep(_POLL_SECONDS)

    def _handlers(self, service: str) -> dict[str, Any]:
        return {
            PREPARE: grpc.unary_stream_rpc_method_handler(
                lambda request, context: self._prepare(service, request, context),
                request_deserializer=api.NodePrepareResourcesRequest.FromString,
                response_serializer=_serialized,
            ),
            UNPREPARE: grpc.unary_stream_rpc_method_handler(
                lambda request, context: self._unprepare(service, request, context),
                request_deserializer=api.NodeUnprepareResourcesRequest.FromString,
                response_serializer=_serialized,
            ),
        }

    def _health_handlers(self, service: str) -> dict[str, Any]:
        return {
            WATCH: grpc.unary_stream_rpc_method_handler(
                lambda request, context: self._watch(service, context),
                request_deserializer=dra_health_pb2.NodeWatchResourcesRequest.FromString,
                response_serializer=_serialized,
            )
        }

    def _watch(self, service: str, context: Any) -> Iterator[Any]:
        """Report the health of all devices whenever it has changed."""
        with self._lock, (self.directory / "calls").open("a") as calls:
            calls.write(json.dumps([WATCH, service, []]) + "\n")
        sent: Any = None
        while not self._ended.is_set() and context.is_active():
            reported = (
                _read(self.directory / "health.json"),
                str(_read(self.directory / "faults.json").get(WATCH, "")),
            )
            if reported != sent:
                sent = reported
                devices, fault = reported
                if fault.isupper():
                    context.abort(grpc.StatusCode[fault], f"{WATCH} fails on request")
                report = dra_health_pb2.NodeWatchResourcesResponse()
                for name, (health, message, timeout) in devices.items():
                    report.devices.add(
                        device={"pool_name": "node", "device_name": name},
                        health=health,
                        message=message,
                        health_check_timeout_seconds=timeout,
                    )
                if fault == "many":
                    report.devices.extend([dra_health_pb2.DeviceHealth()] * 10_001)
                yield b"\xff\xff" if fault == "garbage" else report
            time.sleep(_POLL_SECONDS)

    def _serve(self, socket: Path, services: dict[str, Any]) -> None:
        server = grpc.server(self._threads)
        for name, handlers in services.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        self._servers.append(server)

    # The methods. Each answers with a stream, so that it can answer twice.

    def _prepare(self, service: str, request: Any, context: Any) -> Iterator[Any]:
        given = _read(self.directory / "devices.json")
        answer = api.NodePrepareResourcesResponse()
        for claim in request.claims:
            devices = given.get(claim.name) or [
                {"pool_name": "node", "device_name": claim.name, "cdi_device_ids": [f"{self.name}/claim={claim.uid}"]}
            ]
            answer.claims[claim.uid].devices.extend(api.Device(**device) for device in devices)
        yield from self._answer((PREPARE, service), request, context, answer, self._write_prepared)

    def _unprepare(self, service: str, request: Any, context: Any) -> Iterator[Any]:
        answer = api.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            answer.claims[claim.uid].SetInParent()
        yield from self._answer((UNPREPARE, service), request, context, answer, self._remove_prepared)

    def _write_prepared(self, request: Any) -> None:
        _write(self.directory / "prepared.json", self.prepared() | {claim.uid: claim.name for claim in request.claims})
        self.cdi.mkdir(parents=True, exist_ok=True)
        for claim in request.claims:
            kind = {"cdiVersion": "0.6.0", "kind": f"{self.name}/claim"}
            edits = {"env": [f"CLAIM_{claim.name.upper().replace('-', '_')}={claim.uid}"]}
            _write(self.cdi / f"{claim.uid}.json", {**kind, "devices": [{"name": claim.uid, "containerEdits": edits}]})

    def _remove_prepared(self, request: Any) -> None:
        gone = {claim.uid for claim in request.claims}
        _write(self.directory / "prepared.json", {u: name for u, name in self.prepared().items() if u not in gone})
        for uid in gone:
            (self.cdi / f"{uid}.json").unlink(missing_ok=True)

    def _answer(
        self, called: tuple[str, str], request: Any, context: Any, good: Any, act: Callable[[Any], None]
    ) -> Iterator[Any]:
        method, service = called
        with self._lock, (self.directory / "calls").open("a") as calls:
            calls.write(json.dumps([method, service, [claim.name for claim in request.claims]]) + "\n")
        fault = str(_read(self.directory / "faults.json").get(method, ""))
        if fault == "hang":
            self._ended.wait()
            context.abort(grpc.StatusCode.UNAVAILABLE, "the driver ends")
        if fault == "slow":
            self._ended.wait(0.5)
        if fault == "die":
            self._die()
        if fault.isupper():
            context.abort(grpc.StatusCode[fault], f"{method} fails\non request")
        if fault in ("", "slow", "die after", "answers twice"):
            with self._lock:
                act(request)
        if fault == "die after":
            self._die()
        if fault == "lie":
            good.claims["someone-else"].SetInParent()
        if fault == "skip":
            good.claims.clear()
        for uid in list(good.claims):
            if fault == "error":
                good.claims[uid].error = "no such\ndevice"
            if fault == "long" and method == PREPARE:
                good.claims[uid].devices[0].device_name = "x" * 5000
        yield b"\xff\xff" if fault == "garbage" else good
        if fault == "answers twice":
            yield good


def _serialized(answer: Any) -> bytes:
    return answer if isinstance(answer, bytes) else bytes(answer.SerializeToString())


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(content))
    temporary.rename(path)


def main() -> None:
    """Run the driver of the command line until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("name")
    parser.add_argument("--service", action="append", help="which it serves; the default: both")
    parser.add_argument("--cdi", type=Path, help="directory for its CDI specifications")
    arguments = parser.parse_args()
    services = tuple(arguments.service or (V1, V1BETA1))
    DraDriver(arguments.root, arguments.name, services=services, cdi=arguments.cdi).run()


if __name__ == "__main__":
    main()
