"""A device plugin v1beta1 with faults on request. `python -m tests.programs.device_plugin DIRECTORY RESOURCE --ids a,b`
runs it as a process, which registers again whenever the socket of the agent is replaced, as real ones do.

Its devices and faults are in files beside its socket, so that they can be changed while it runs, and survive it.
"""

import argparse
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from shared.plugin_grpc import device_plugin_pb2 as api
from shared.plugin_grpc import registration_pb2

AGENT = "kubelet.sock"
METHODS = ("GetDevicePluginOptions", "ListAndWatch", "GetPreferredAllocation", "Allocate", "PreStartContainer")
_POLL_SECONDS = 0.02

Devices = Mapping[str, tuple[str, tuple[int, ...]]]  # id -> health, NUMA nodes


def devices_of(*ids: str, health: str = "Healthy", nodes: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return devices with these ids, all in the same state."""
    return dict.fromkeys(ids, (health, nodes))


class DevicePlugin:
    """Serves the devices of a resource. `directory`: device-plugins of the agent; `state`: where devices, faults and
    the log of calls are; `cdi`: where it writes the CDI specification of its devices, None = they are no CDI devices.

    A fault of a method: "hang" (until the plugin ends, or the fault does), "die" (before it answers), "slow" (half a
    second), "lie" (an answer that does not fit), "garbage" (no message), "empty", "answers twice", or the name of a
    gRPC code. Those of ListAndWatch only: "twice" (an id twice), "many" (10 001 devices), "every millisecond", "long"
    (more than 4 MiB), "nodes" (a million NUMA nodes).
    """

    def __init__(
        self,
        directory: Path,
        resource: str,
        devices: Devices,
        *,
        socket: str = "plugin.sock",
        pre_start: bool = False,
        preferred: bool = False,
        cdi: Path | None = None,
        die: Callable[[], None] | None = None,
    ) -> None:
        self.directory, self.resource, self.socket = directory, resource, directory / socket
        self.state = directory / f"{socket}.state"
        self.state.mkdir(parents=True, exist_ok=True)
        self.options = api.DevicePluginOptions(
            pre_start_required=pre_start, get_preferred_allocation_available=preferred
        )
        self._die, self._ended, self._cdi = die or self.break_off, threading.Event(), cdi
        self._server: Any = None
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="device plugin")
        if not (self.state / "devices.json").exists():
            self.set_devices(devices)

    def set_devices(self, devices: Devices) -> None:
        """List these from now on."""
        _write(self.state / "devices.json", {name: [health, list(nodes)] for name, (health, nodes) in devices.items()})

    def fault(self, method: str, what: str = "") -> None:
        """Let each call of the method fail so; "" = none fails."""
        _write(self.state / "faults.json", {**_read(self.state / "faults.json"), method: what})

    def calls(self, method: str) -> list[list[str]]:
        """Return the ids of each call of the method by all processes."""
        path = self.state / "calls"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [ids for name, ids in lines if name == method]

    def start(self) -> None:
        """Serve, also where an earlier process left its socket; nothing where it serves already."""
        if self._server is not None:
            return
        self.socket.unlink(missing_ok=True)
        handlers = {
            name: grpc.unary_stream_rpc_method_handler(
                getattr(self, f"_{name}"),
                request_deserializer=_REQUESTS[name].FromString,
                response_serializer=lambda answer: answer if isinstance(answer, bytes) else answer.SerializeToString(),
            )
            for name in METHODS
        }
        self._server = grpc.server(self._threads)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def register(self, *, version: str = "v1beta1", endpoint: str = "", resource: str = "") -> None:
        """Register at the agent. Raises grpc.RpcError."""
        request = api.RegisterRequest(
            version=version, endpoint=endpoint or self.socket.name, resource_name=resource or self.resource
        )
        with grpc.insecure_channel(f"unix:{self.directory / AGENT}", _OWN_CONNECTION) as channel:
            channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=api.Empty.FromString,
            )(request, timeout=30.0)

    def register_below(self, plugins_registry: Path) -> None:
        """Serve plugin registration v1 at a socket below this directory."""
        answer = registration_pb2.PluginInfo(
            type="DevicePlugin", name=self.resource, endpoint=str(self.socket), supported_versions=["v1beta1"]
        )
        handlers = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(
                lambda request, context: answer.SerializeToString(),
            ),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(lambda request, context: b""),
        }
        self._registration = grpc.server(self._threads)
        self._registration.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("pluginregistration.Registration", handlers),)
        )
        self._registration.add_insecure_port(f"unix:{plugins_registry / f'{self.socket.name}'}")
        self._registration.start()

    def break_off(self) -> None:
        """Break all connections off at once, and serve no more until `start`."""
        server, self._server = self._server, None
        server.stop(None)

    def stop(self) -> None:
        """End as a killed process does: the socket stays."""
        self._ended.set()
        for server in (self._server, getattr(self, "_registration", None)):
            if server is not None:
                server.stop(0).wait()
        self._threads.shutdown(cancel_futures=True)

    def run(self) -> None:
        """Serve and register, at each new socket of the agent again, until the process is killed."""
        registered: tuple[int, int] | None = None
        while True:
            with contextlib.suppress(OSError, grpc.RpcError):
                socket = (self.directory / AGENT).stat()
                found = (socket.st_ino, socket.st_mtime_ns)  # the next socket may have the same inode
                if found != registered:
                    if self._server is not None:
                        self._server.stop(0).wait()
                        self._server = None
                    self.start()
                    self.register()
                    registered = found
            time.sleep(_POLL_SECONDS)

    # The methods. Each answers with a stream, so that it can answer twice.

    def _GetDevicePluginOptions(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802  the method's name
        yield from self._answer("GetDevicePluginOptions", (), context, self.options)

    def _ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        sent, count = None, 0
        while not self._ended.is_set() and context.is_active():
            fault = self._fault("ListAndWatch", context)
            listed = (_read(self.state / "devices.json"), fault)
            count += 1
            if listed != sent or fault == "every millisecond":
                sent = listed
                yield from self._list(*listed, count)
            time.sleep(0.001 if fault == "every millisecond" else _POLL_SECONDS)

    def _list(self, devices: dict[str, Any], fault: str, count: int) -> Iterator[Any]:
        listed = [
            api.Device(ID=name, health=health, topology={"nodes": [{"ID": node} for node in nodes]} if nodes else None)
            for name, (health, nodes) in devices.items()
        ]
        if fault == "garbage":
            yield b"\xff\xff"
            return
        if fault == "every millisecond":
            for device in listed:
                device.health = "Unhealthy" if count % 2 else "Healthy"
        if fault == "twice":
            listed += listed
        if fault == "many":
            listed = [api.Device(ID=str(number), health="Healthy") for number in range(10_001)]
        if fault == "lie":
            listed = [api.Device(ID="a\nb", health="Healthy")]
        if fault == "nodes":
            listed = [api.Device(ID="a", health="Healthy", topology={"nodes": [{}] * 1_000_000})]
        if fault == "long":
            listed = [api.Device(ID="x" * (5 << 20), health="Healthy")]
        yield api.ListAndWatchResponse(devices=listed)

    def _GetPreferredAllocation(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Return the highest ids, which this plugin prefers."""
        [wanted] = request.container_requests
        must = list(wanted.must_include_deviceIDs)
        more = sorted(set(wanted.available_deviceIDs) - set(must), reverse=True)
        ids = [*must, *more][: wanted.allocation_size]
        good = api.PreferredAllocationResponse(container_responses=[{"deviceIDs": ids}])
        lie = api.PreferredAllocationResponse(container_responses=[{"deviceIDs": ["no such device"]}])
        empty = api.PreferredAllocationResponse()
        yield from self._answer("GetPreferredAllocation", wanted.available_deviceIDs, context, good, lie, empty)

    def _Allocate(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        [wanted] = request.container_requests
        ids = list(wanted.devices_ids)
        name = self.resource.rpartition("/")[2]
        answer = api.ContainerAllocateResponse(
            envs={f"{name.upper()}_IDS": ",".join(ids)},
            mounts=[api.Mount(container_path="/plugin", host_path=str(self.state), read_only=True)],
            devices=[
                api.DeviceSpec(container_path=f"/dev/{each}", host_path="/dev/null", permissions="rw") for each in ids
            ],
            annotations={"example.com/devices": ",".join(ids)},
            cdi_devices=[api.CDIDevice(name=name) for name in self._cdi_names(ids)],
        )
        long = api.ContainerAllocateResponse(envs={"LONG": "x" * (1 << 20)})
        yield from self._answer(
            "Allocate",
            ids,
            context,
            api.AllocateResponse(container_responses=[answer]),
            api.AllocateResponse(container_responses=[long]),
            api.AllocateResponse(),
        )

    def _cdi_names(self, ids: list[str]) -> list[str]:
        """Write the CDI specification of the devices that the plugin lists now, and return the names of these in it."""
        if self._cdi is None:
            return []
        listed = [
            {"name": name, "containerEdits": {"env": [f"CDI_{name.upper()}=given"]}}
            for name in _read(self.state / "devices.json")
        ]
        specification = {"cdiVersion": "0.5.0", "kind": self.resource, "devices": listed}
        self._cdi.mkdir(parents=True, exist_ok=True)
        _write(self._cdi / f"{self.resource.replace('/', '-')}.json", specification)
        return [f"{self.resource}={each}" for each in ids]

    def _PreStartContainer(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        yield from self._answer("PreStartContainer", request.devices_ids, context, api.PreStartContainerResponse())

    def _answer(
        self, method: str, ids: Any, context: Any, good: Any, lie: Any = b"\xff\xff", empty: Any = b""
    ) -> Iterator[Any]:
        with (self.state / "calls").open("a") as calls:
            calls.write(json.dumps([method, list(ids)]) + "\n")
        fault = self._fault(method, context)
        yield {"lie": lie, "empty": empty, "garbage": b"\xff\xff"}.get(fault, good)
        if fault == "answers twice":
            yield good

    def _fault(self, method: str, context: Any) -> str:
        """Return the fault of this call, unless it ends the call."""
        fault = str(_read(self.state / "faults.json").get(method, ""))
        while fault == "hang":
            if self._ended.wait(_POLL_SECONDS):
                context.abort(grpc.StatusCode.UNAVAILABLE, "the plugin ends")
            fault = str(_read(self.state / "faults.json").get(method, ""))
        if fault == "slow":
            self._ended.wait(0.5)
        if fault == "die":
            self._die()
        if fault.isupper():
            context.abort(grpc.StatusCode[fault], f"{method} fails\non request")
        return fault


_REQUESTS: dict[str, Any] = {
    "GetDevicePluginOptions": api.Empty,
    "ListAndWatch": api.Empty,
    "GetPreferredAllocation": api.PreferredAllocationRequest,
    "Allocate": api.AllocateRequest,
    "PreStartContainer": api.PreStartContainerRequest,
}
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.new")  # test and plugin may both write
    temporary.write_text(json.dumps(content))
    temporary.rename(path)


def main() -> None:
    """Run the plugin of the command line until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("resource")
    parser.add_argument("--ids", default="", help="ids of its devices, separated by commas")
    parser.add_argument("--pre-start", action="store_true", help="it is called before each start of a container")
    parser.add_argument("--cdi", type=Path, help="directory for the CDI specification of its devices")
    arguments = parser.parse_args()
    devices = devices_of(*filter(None, arguments.ids.split(",")))
    plugin = DevicePlugin(
        arguments.directory,
        arguments.resource,
        devices,
        pre_start=arguments.pre_start,
        cdi=arguments.cdi,
        die=lambda: os.kill(os.getpid(), signal.SIGKILL),
    )
    plugin.run()


if __name__ == "__main__":
    main()
