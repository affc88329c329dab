"""What an operator reads when the socket of the runtime is missing, dead, or something else."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from cri_api.v1 import api_pb2

from shared.cri.call_metrics import operation_type
from shared.cri.channel import explain, socket_path, target
from shared.cri.client import CriRuntime
from shared.cri.decode import decode_cgroup_driver
from shared.cri.interface import RuntimeCallError
from shared.metrics.registry import Registry
from tests.architecture.checkout import CHECKOUT
from tests.support.waits.deadline import WAIT_SECONDS


async def refusal(endpoint: str) -> RuntimeCallError:
    runtime = CriRuntime(endpoint, request_timeout=WAIT_SECONDS)
    try:
        with pytest.raises(RuntimeCallError) as error:
            await runtime.version()
        return error.value
    finally:
        await runtime.close()


async def test_a_missing_socket_has_the_kubelets_error(tmp_path: Path) -> None:
    path = tmp_path / "missing.sock"
    error = await refusal(f"unix://{path}")
    assert (error.method, error.code) == ("Version", "Unavailable")
    assert str(error) == (
        'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: '
        f'dial unix {path}: connect: no such file or directory"'
    )


async def test_a_file_that_is_no_socket_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "connect: connection refused" in str(await refusal(str(tmp_path / "file")))


async def test_a_server_that_is_no_cri_is_reported_as_none(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    path = tmp_path / "http.sock"
    async with await asyncio.start_unix_server(answer, path):
        error = await refusal(f"unix://{path}")
    assert error.code == "Unavailable"
    assert f"what listens on {path} does not speak gRPC" in str(error)


def test_the_same_on_uvloop(tmp_path: Path) -> None:
    assert "no such file" in str(uvloop.run(refusal(f"unix://{tmp_path}/missing.sock")))


def test_a_grpc_server_without_cri_and_a_hanging_one_are_distinguished() -> None:
    assert "does not offer CRI v1" in explain("unix:///x", "Unimplemented", "unknown service")
    assert explain("unix:///x", "Unimplemented", "unknown method", core_call=False) == "unknown method"
    hanging = "connection attempt timed out before receiving SETTINGS frame"
    assert explain("unix:///x", "Unavailable", hanging).startswith("what listens on /x does not answer")


def test_endpoints_are_taken_as_the_kubelet_takes_them() -> None:
    assert target("unix:///run/c.sock") == target("/run/c.sock") == "unix:///run/c.sock"
    assert target("tcp://127.0.0.1:1") == "127.0.0.1:1"
    assert socket_path("unix:///run/c.sock") == socket_path("unix:/run/c.sock") == "/run/c.sock"


@pytest.mark.parametrize(("number", "driver"), [(0, "systemd"), (1, "cgroupfs"), (7, None)])
def test_the_cgroup_driver_has_its_name_of_the_configuration(number: int, driver: str | None) -> None:
    answer = api_pb2.RuntimeConfigResponse()
    assert decode_cgroup_driver(answer) is None
    answer.linux.cgroup_driver = cast(Any, number)
    assert decode_cgroup_driver(answer) == driver


async def test_calls_and_their_errors_are_counted_by_the_kubelets_operation_types(tmp_path: Path) -> None:
    metrics = Registry()
    runtime = CriRuntime(f"unix://{tmp_path}/missing.sock", request_timeout=WAIT_SECONDS, metrics=metrics)
    for call in (runtime.version(), runtime.stop_pod_sandbox("s"), runtime.run_pod_sandbox({}, "gvisor")):
        with pytest.raises(RuntimeCallError):
            await call
    with pytest.raises(RuntimeCallError):
        await anext(runtime.events())
    await runtime.close()
    counted = {family.name: series for family, series in metrics.collect()}
    operations = {("version",), ("stop_podsandbox",), ("run_podsandbox",), ("get_container_events",)}
    for name in ("kubelet_runtime_operations_total", "kubelet_runtime_operations_errors_total"):
        assert counted[name] == {operation: [1.0] for operation in operations}
    assert set(counted["kubelet_runtime_operations_duration_seconds"]) == operations
    assert counted["kubelet_run_podsandbox_errors_total"] == {("gvisor",): [1.0]}


def test_operation_types_are_those_of_the_reference() -> None:
    text = (CHECKOUT / "docs/reference/node.md").read_text().partition("### 9.2 ")[2].partition("Total + duration")[0]
    listed = set(text.partition("\n")[2].strip().rstrip(".").split(", "))
    services_ = api_pb2.DESCRIPTOR.services_by_name
    methods = {method.name for name in ("RuntimeService", "ImageService") for method in services_[name].methods}
    assert {operation_type(method) for method in methods} <= listed
    assert operation_type("UpdateContainerResources") == "update_container"
