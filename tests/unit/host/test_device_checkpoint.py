"""Which resources a device plugin checkpoint names, and what is no checkpoint."""

import os
from pathlib import Path

import orjson
import pytest

from shared.host.device_checkpoint import DeviceCheckpoint

GO_KUBELETS = (
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"example.com/old",'
    b'"DeviceIDs":{"-1":["d0"]},"AllocResp":"EgA="}],"RegisteredDevices":{"example.com/gpu":["d0","d1"]}},'
    b'"Checksum":1234567}'
)


def test_the_registered_resources_are_named(tmp_path: Path) -> None:
    file = tmp_path / "kubelet_internal_checkpoint"
    checkpoint = DeviceCheckpoint(file)
    assert checkpoint.resources() == frozenset()
    file.write_bytes(GO_KUBELETS)
    assert checkpoint.resources() == checkpoint.resources() == {"example.com/gpu"}
    file.write_bytes(b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1}')
    assert checkpoint.resources() == frozenset()
    file.write_bytes(GO_KUBELETS)
    assert checkpoint.resources() == {"example.com/gpu"}
    file.unlink()
    assert checkpoint.resources() == frozenset()


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"Data":{"RegisteredDevices":[]}}',
        orjson.dumps({"Data": {"RegisteredDevices": {f"x/{number}": [] for number in range(300)}}}),
        b" " * (16 * 2**20 + 1),
    ],
    ids=["not JSON", "a list", "too many", "too long"],
)
def test_a_file_that_cannot_be_used_is_one_line_and_what_was_read_before_counts(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "kubelet_internal_checkpoint"
    file.write_bytes(GO_KUBELETS)
    checkpoint = DeviceCheckpoint(file)
    checkpoint.resources()
    file.write_bytes(content)
    assert checkpoint.resources() == checkpoint.resources() == {"example.com/gpu"}
    assert [line.count("cannot be used") for line in caplog.messages] == [1]


def test_a_name_that_the_api_server_would_refuse_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "kubelet_internal_checkpoint"
    names = ["example.com/gpu", "gpu", "kubernetes.io/gpu", "example.com/a b", "x/" + "y" * 64, ""]
    file.write_bytes(orjson.dumps({"Data": {"RegisteredDevices": {name: [] for name in names}}}))
    assert DeviceCheckpoint(file).resources() == {"example.com/gpu"}


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "kubelet_internal_checkpoint"
    os.mkfifo(file)
    assert DeviceCheckpoint(file).resources() == frozenset()
