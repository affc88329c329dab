"""Fields that the generated messages lack are sent and read as in the .proto file of CRI for Kubernetes 1.37:
`repeated string mount_options = 11` of Mount, `bool mount_options = 3` of RuntimeFeatures."""

from typing import Any

import pytest
from cri_api.v1 import api_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from shared.cri.decode import decode_features, fill_container
from shared.cri.interface import RuntimeCallError


def newer_message(name: str, number: int, kind: int, *, repeated: bool) -> Any:
    """A message with one field, made by protobuf itself."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="newer", syntax="proto3")
    field = file.message_type.add(name=name).field.add(name="mount_options", number=number)
    field.type = kind  # type: ignore[assignment]
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"newer.{name}"))


Mount = newer_message("Mount", 11, descriptor_pb2.FieldDescriptorProto.TYPE_STRING, repeated=True)
Features = newer_message("RuntimeFeatures", 3, descriptor_pb2.FieldDescriptorProto.TYPE_BOOL, repeated=False)


def test_the_options_of_mounts_are_sent() -> None:
    plain = {"container_path": "/a", "host_path": "/h/a"}
    config = api_pb2.ContainerConfig()
    mounts = [{**plain, "mount_options": ["noexec", "nosuid"]}, plain]
    fill_container("CreateContainer", config, {"metadata": {"name": "c"}, "mounts": mounts})
    sent = api_pb2.ContainerConfig.FromString(config.SerializeToString()).mounts
    assert [(mount.container_path, mount.host_path) for mount in sent] == [("/a", "/h/a")] * 2
    read = [Mount.FromString(mount.SerializeToString()).mount_options for mount in sent]
    assert read == [["noexec", "nosuid"], []]


def test_an_option_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(RuntimeCallError, match="at most 127 are sent"):
        mounts = [{"container_path": "/a", "mount_options": ["x" * 128]}]
        fill_container("CreateContainer", api_pb2.ContainerConfig(), {"mounts": mounts})


@pytest.mark.parametrize(("features", "taken"), [({"mount_options": True}, True), ({}, False)])
def test_whether_the_runtime_takes_options_of_mounts_is_read(features: dict[str, bool], taken: bool) -> None:
    response = api_pb2.StatusResponse()
    response.features.MergeFromString(Features(**features).SerializeToString())
    response.features.supplemental_groups_policy = True
    read = decode_features(api_pb2.StatusResponse.FromString(response.SerializeToString()))
    assert (read.mount_options, read.supplemental_groups_policy) == (taken, True)


def test_a_runtime_without_features_takes_none() -> None:
    assert decode_features(api_pb2.StatusResponse()).mount_options is False
