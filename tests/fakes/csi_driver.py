"""A small CSI driver for tests: directories of its state as volumes, persistent state, and faults on request.

It serves plugin registration and the Identity and Node services on sockets below a kubelet's root directory. Mounts are
real, or played in a file for tests without root. `python -m tests.fakes.csi_driver` runs it as a process; it needs no
other module of the tests.
"""

import argparse
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import grpc
from google.protobuf.json_format import MessageToDict

from services.volume.adapters.mounts import mount_table
from shared.plugin_grpc import csi_pb2, registration_pb2

STAGE, STATS, EXPAND = "STAGE_UNSTAGE_VOLUME", "GET_VOLUME_STATS", "EXPAND_VOLUME"
MULTI_WRITER, MOUNT_GROUP = "SINGLE_NODE_MULTI_WRITER", "VOLUME_MOUNT_GROUP"
_NODE_METHODS = (
    "NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeGetVolumeStats",
    "NodeGetVolumeHealth", "NodeExpandVolume", "NodeGetCapabilities", "NodeGetInfo",
)  # fmt: skip

_GARBAGE = b"\xff\xff"

Methods = dict[str, Callable[[Any], Any]]


class Mounts:
    """Mounts in a file, for tests without root: target -> source. The threads of a driver, and of the one before it in
    the same process, change it one at a time."""

    _changing = threading.Lock()

    def __init__(self, path: Path) -> None:
        self._path = path

    def table(self) -> dict[str, str]:
        """Every mount."""
        return dict(json.loads(self._path.read_text())) if self._path.exists() else {}

    def mount(self, source: Path, target: Path, *, read_only: bool, options: Iterable[str] | None = None) -> None:
        """Mount the source at the target. With `options` the source is the image of a file system, and the
        options are those of its mount."""
        with self._changing:
            self._write({**self.table(), str(target): str(source)})

    def unmount(self, target: Path) -> None:
        """Unmount the target; nothing is no error."""
        with self._changing:
            self._write({path: source for path, source in self.table().items() if path != str(target)})

    def is_mounted(self, target: Path) -> bool:
        """Whether something is mounted at the target."""
        return str(target) in self.table()

    def _write(self, table: dict[str, str]) -> None:
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(table))
        temporary.rename(self._path)


class BindMounts(Mounts):
    """Makes real mounts: a bind mount of a directory or a device, a loop mount of an image."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"))

    def table(self) -> dict[str, str]:
        """Every mount point."""
        return {mount.path: mount.root for mount in mount_table()}

    def mount(self, source: Path, target: Path, *, read_only: bool, options: Iterable[str] | None = None) -> None:
        """See Mounts."""
        how = ["--bind"] if options is None else ["-o", ",".join(("loop", *options))]
        subprocess.run(["mount", *how, source, target], check=True)
        if read_only:
            subprocess.run(["mount", "-o", "remount,bind,ro", target], check=True)

    def unmount(self, target: Path) -> None:
        """See Mounts."""
        if self.is_mounted(target):
            subprocess.run(["umount", target], check=True)


class CsiDriver:
    """`root`: of the kubelet; `state`: the driver's own directory, with `volumes/<id>/` for each volume, `calls`, one
    JSON line for each call of Node, and `faults.json`, which `fault` writes. A volume is its directory, or the file
    system whose image is `image` in it, which is staged with the mount options of the call.

    A fault of a method is one of "hang" (until the driver ends), "die" (before it acts), "die after" (it acted and does
    not answer), "twice" (it acts twice), "answers twice", "garbage" (it acts, and its answer is no message), or a gRPC
    code as "INTERNAL" (before it acts) or "INTERNAL after".
    """

    def __init__(
        self,
        root: Path,
        state: Path,
        name: str = "hostpath.csi.k8s.io",
        *,
        capabilities: Iterable[str] = (STAGE, STATS, EXPAND),
        versions: Iterable[str] = ("1.0.0",),
        kind: str = "CSIPlugin",
        node: csi_pb2.NodeGetInfoResponse | None = None,
        mounts: Mounts | None = None,
        die: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGKILL),
    ) -> None:
        self.root, self.state, self.name, self.kind = root, state, name, kind
        self.capabilities, self.versions = tuple(capabilities), tuple(versions)
        self.node = node or csi_pb2.NodeGetInfoResponse(node_id="node-id")
        state.mkdir(parents=True, exist_ok=True)
        self.mounts = mounts or Mounts(state / "mounts.json")
        self.registration = root / "plugins_registry" / f"{name}-reg.sock"
        self.endpoint = root / "plugins" / name / "csi.sock"
        self.statuses: list[tuple[bool, str]] = []  # the registration statuses that it received
        self.registered = threading.Event()
        self.condition: csi_pb2.VolumeCondition | None = None  # of every volume
        self.health: list[tuple[int, str, str]] = []  # of every volume: status, reason, message
        self._die, self._ended = die, threading.Event()
        self._lock = threading.Lock()
        self._servers: list[Any] = []
        self._threads: list[ThreadPoolExecutor] = []

    def start(self) -> None:
        """Serve, also where an earlier process left its sockets."""
        node: Methods = {method: self._handler(method) for method in _NODE_METHODS}
        identity: Methods = {"GetPluginInfo": self._plugin_info, "Probe": self._probe}
        self._serve(self.endpoint, {"csi.v1.Node": (csi_pb2, node), "csi.v1.Identity": (csi_pb2, identity)})
        registration: Methods = {"GetInfo": self._get_info, "NotifyRegistrationStatus": self._notified}
        self._serve(self.registration, {"pluginregistration.Registration": (registration_pb2, registration)})

    def stop(self) -> None:
        """End as a killed process does: the sockets stay. No call acts after the return."""
        self._ended.set()
        for server in self._servers:
            server.stop(0).wait()
        for threads in self._threads:
            threads.shutdown(cancel_futures=True)

    def remove(self) -> None:
        """End, and remove the sockets."""
        self.stop()
        self.registration.unlink(missing_ok=True)
        self.endpoint.unlink(missing_ok=True)

    def fault(self, method: str, what: str = "", times: int = 1) -> None:
        """The next calls of the method fail so; "" = they do not."""
        with self._lock:  # calls of other threads take theirs from the file meanwhile
            self._write_faults({**self._read_faults(), method: [what] * times if what else []})

    def volume(self, volume: str) -> Path:
        """The directory that is the volume."""
        return self.state / "volumes" / volume

    def calls(self, *methods: str) -> list[dict[str, Any]]:
        """The calls of these methods, all of Node without, by all processes: `method`, and the request's fields."""
        path = self.state / "calls"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if not methods or line["method"] in methods]

    # The services.

    def _serve(self, socket: Path, services: dict[str, tuple[Any, Methods]]) -> None:
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        threads = ThreadPoolExecutor(16, thread_name_prefix="csi driver")
        self._threads.append(threads)
        server = grpc.server(threads)
        for service, (module, methods) in services.items():
            described = module.DESCRIPTOR.services_by_name[service.rpartition(".")[2]].methods_by_name
            handlers = {}
            for name, act in methods.items():
                request = described[name].input_type._concrete_class
                handlers[name] = grpc.unary_stream_rpc_method_handler(  # one answer; on request two
                    self._answering(name, act),
                    request_deserializer=request.FromString,
                    response_serializer=lambda message: message if message == _GARBAGE else message.SerializeToString(),
                )
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        self._servers.append(server)

    def _answering(self, method: str, act: Callable[[Any], Any]) -> Callable[[Any, Any], Iterator[Any]]:
        def answer(request: Any, context: Any) -> Iterator[Any]:
            fault = self._next_fault(method)
            if fault == "hang":
                self._ended.wait()
                context.abort(grpc.StatusCode.UNAVAILABLE, "the driver ends")
            if fault == "die":
                self._die()
            if fault.isupper() and fault:
                context.abort(grpc.StatusCode[fault], f"{method} fails on request")
            try:
                found = act(request)
                if fault == "twice":
                    found = act(request)
            except KeyError as missing:
                context.abort(grpc.StatusCode.NOT_FOUND, f"volume {missing} does not exist")
            except ValueError as invalid:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(invalid))
            except (OSError, subprocess.CalledProcessError) as failure:
                context.abort(grpc.StatusCode.INTERNAL, str(failure))
            if fault == "die after":
                self._die()
            if fault.endswith(" after") and fault != "die after":
                context.abort(grpc.StatusCode[fault.removesuffix(" after")], f"{method} fails on request, done")
            yield _GARBAGE if fault == "garbage" else found
            if fault == "answers twice":
                yield found

        return answer

    def _next_fault(self, method: str) -> str:
        with self._lock:
            faults = self._read_faults()
            waiting = faults.get(method) or []
            if not waiting:
                return ""
            self._write_faults({**faults, method: waiting[1:]})
            return str(waiting[0])

    def _read_faults(self) -> dict[str, list[str]]:
        path = self.state / "faults.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _write_faults(self, faults: dict[str, list[str]]) -> None:
        """Replace the file, which another process reads as well."""
        temporary = self.state / "faults.new"
        temporary.write_text(json.dumps(faults))
        temporary.rename(self.state / "faults.json")

    def _get_info(self, request: Any) -> Any:
        return registration_pb2.PluginInfo(
            type=self.kind, name=self.name, endpoint=str(self.endpoint), supported_versions=self.versions
        )

    def _notified(self, request: Any) -> Any:
        self.statuses.append((request.plugin_registered, request.error))
        if request.plugin_registered:
            self.registered.set()
        return registration_pb2.RegistrationStatusResponse()

    def _plugin_info(self, request: Any) -> Any:
        return csi_pb2.GetPluginInfoResponse(name=self.name, vendor_version="1")

    def _probe(self, request: Any) -> Any:
        return csi_pb2.ProbeResponse()

    def _handler(self, method: str) -> Callable[[Any], Any]:
        act = getattr(self, f"_{method}")

        def logged(request: Any) -> Any:
            with self._lock, (self.state / "calls").open("a") as calls:
                fields = MessageToDict(request, preserving_proto_field_name=True)
                calls.write(json.dumps({"method": method, **fields}) + "\n")
            return act(request)

        return logged

    def _NodeGetInfo(self, request: Any) -> Any:  # noqa: N802  the method's name
        return self.node

    def _NodeGetCapabilities(self, request: Any) -> Any:  # noqa: N802
        rpcs = [csi_pb2.NodeServiceCapability.RPC(type=name) for name in self.capabilities]
        return csi_pb2.NodeGetCapabilitiesResponse(
            capabilities=[csi_pb2.NodeServiceCapability(rpc=rpc) for rpc in rpcs]
        )

    def _NodeStageVolume(self, request: Any) -> Any:  # noqa: N802
        staging = Path(request.staging_target_path)
        _required(staging=request.staging_target_path, volume_id=request.volume_id)
        if request.volume_capability.HasField("mount"):
            if not staging.is_dir():
                raise ValueError(f"{staging} is no directory")
            source = self._existing(request.volume_id)
            if (image := source / "image").exists():
                self._mount(image, staging, read_only=False, options=request.volume_capability.mount.mount_flags)
            else:
                self._mount(source, staging, read_only=False)
        return csi_pb2.NodeStageVolumeResponse()

    def _NodeUnstageVolume(self, request: Any) -> Any:  # noqa: N802
        _required(staging=request.staging_target_path, volume_id=request.volume_id)
        self.mounts.unmount(Path(request.staging_target_path))
        return csi_pb2.NodeUnstageVolumeResponse()

    def _NodePublishVolume(self, request: Any) -> Any:  # noqa: N802
        _required(target=request.target_path, volume_id=request.volume_id)
        target, staging = Path(request.target_path), request.staging_target_path
        inline = request.volume_context.get("csi.storage.k8s.io/ephemeral") == "true"
        if inline:
            self.volume(request.volume_id).mkdir(parents=True, exist_ok=True)
        source = self._existing(request.volume_id)
        if request.volume_capability.HasField("block"):
            device = self.volume(request.volume_id) / "device"
            target.touch()
            self._mount(device.resolve(), target, read_only=request.readonly)
            return csi_pb2.NodePublishVolumeResponse()
        if STAGE in self.capabilities and not inline:
            if not self.mounts.is_mounted(Path(staging)):
                raise ValueError(f"the volume is not staged at {staging}")
            source = Path(staging)
        target.mkdir(exist_ok=True)
        self._mount(source, target, read_only=request.readonly)
        return csi_pb2.NodePublishVolumeResponse()

    def _NodeUnpublishVolume(self, request: Any) -> Any:  # noqa: N802
        _required(target=request.target_path, volume_id=request.volume_id)
        target = Path(request.target_path)
        self.mounts.unmount(target)
        if target.is_dir():
            target.rmdir()
        else:
            target.unlink(missing_ok=True)
        return csi_pb2.NodeUnpublishVolumeResponse()

    def _NodeGetVolumeStats(self, request: Any) -> Any:  # noqa: N802
        self._existing(request.volume_id)
        usage = csi_pb2.VolumeUsage
        return csi_pb2.NodeGetVolumeStatsResponse(
            usage=[
                usage(available=600, total=1000, used=400, unit=usage.BYTES),
                usage(available=6, total=10, used=4, unit=usage.INODES),
            ],
            volume_condition=self.condition,
        )

    def _NodeGetVolumeHealth(self, request: Any) -> Any:  # noqa: N802
        self._existing(request.volume_id)
        health = csi_pb2.VolumeHealth(volume_id=request.volume_id)
        for status, reason, message in self.health:
            health.health_statuses.add(status=cast(Any, status), reason=reason, message=message)
        return csi_pb2.NodeGetVolumeHealthResponse(volume_health=health)

    def _NodeExpandVolume(self, request: Any) -> Any:  # noqa: N802
        volume = self._existing(request.volume_id)
        size = request.capacity_range.required_bytes
        volume.with_suffix(".bytes").write_text(str(size))
        return csi_pb2.NodeExpandVolumeResponse(capacity_bytes=size)

    def _mount(self, source: Path, target: Path, *, read_only: bool, options: Iterable[str] | None = None) -> None:
        if not self.mounts.is_mounted(target):
            self.mounts.mount(source, target, read_only=read_only, options=options)

    def _existing(self, volume: str) -> Path:
        path = self.volume(volume)
        if not path.is_dir():
            raise KeyError(volume)
        return path


def _required(**fields: str) -> None:
    for name, value in fields.items():
        if not value:
            raise ValueError(f"{name} is missing")


def main() -> None:
    """Serve with real mounts until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("--name", default="hostpath.csi.k8s.io")
    parser.add_argument("--capability", action="append", default=[])
    parser.add_argument("--topology", action="append", default=[], help="key=value")
    parser.add_argument("--max-volumes", type=int, default=0)
    given = parser.parse_args()
    segments = dict(pair.split("=", 1) for pair in given.topology)
    topology = csi_pb2.Topology(segments=segments) if segments else None
    node = csi_pb2.NodeGetInfoResponse(
        node_id=f"id-of-{given.name}", max_volumes_per_node=given.max_volumes, accessible_topology=topology
    )
    driver = CsiDriver(
        given.root, given.state, given.name, capabilities=given.capability, node=node, mounts=BindMounts()
    )
    driver.start()
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
