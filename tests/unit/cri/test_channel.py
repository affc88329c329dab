"""What an operator reads when the socket of the runtime is missing, dead, or something else."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from cri_api.v1 import api_pb2

from shared.cri.channel import explain, socket_path, target
from shared.cri.client import CriRuntime
from shared.cri.decode import decode_cgroup_driver
from shared.cri.interface import RuntimeCallError


async def refusal(endpoint: str) -> RuntimeCallError:
    runtime = CriRuntime(endpoint, request_timeout=5)
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
