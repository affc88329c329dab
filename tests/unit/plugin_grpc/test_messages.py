"""The generated messages are those of the `.proto` files beside them, with the field numbers that plugins use."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from shared.plugin_grpc import csi_pb2, device_plugin_pb2, dra_health_pb2, dra_pb2, registration_pb2

ROOM = Path(csi_pb2.__file__).parent


@pytest.mark.parametrize("module", [csi_pb2, device_plugin_pb2, dra_health_pb2, dra_pb2, registration_pb2])
def test_the_generated_module_is_that_of_its_proto_file(module: Any, tmp_path: Path) -> None:
    described = module.DESCRIPTOR
    compiled = tmp_path / "compiled"
    include = Path(protoc.__file__).parent / "_proto"
    arguments = [f"-I{ROOM.parents[1]}", f"-I{include}", f"--descriptor_set_out={compiled}", described.name]
    assert protoc.main(["protoc", *arguments]) == 0
    found = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes()).file[0]
    for message in found.message_type:
        _drop_json_names(message)
    generated = descriptor_pb2.FileDescriptorProto()
    described.CopyToProto(generated)
    assert generated == found


def _drop_json_names(message: Any) -> None:
    """A generated module has none."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _drop_json_names(nested)


def test_requests_have_the_bytes_that_other_implementations_send() -> None:
    """Field 4, a capability with field 2 (mount) and field 3 (the access mode), written by hand."""
    capability = csi_pb2.VolumeCapability(
        mount=csi_pb2.VolumeCapability.MountVolume(fs_type="xfs", mount_flags=["ro"]),
        access_mode=csi_pb2.VolumeCapability.AccessMode(mode="MULTI_NODE_MULTI_WRITER"),
    )
    request = csi_pb2.NodeStageVolumeRequest(volume_id="v", staging_target_path="/s", volume_capability=capability)
    mount = b"\x0a\x03xfs\x12\x02ro"
    inner = b"\x12" + bytes([len(mount)]) + mount + b"\x1a\x02\x08\x05"
    assert request.SerializeToString() == b"\x0a\x01v\x1a\x02/s\x22" + bytes([len(inner)]) + inner
    assert registration_pb2.RegistrationStatus(plugin_registered=True).SerializeToString() == b"\x08\x01"
