"""What a CSI volume asks of its driver, read from PersistentVolumes, inline sources and CSIDrivers of any shape."""

from typing import Any

import pytest

from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import ContentError, FoundObject, FoundToken, Problem, SetUpInputs
from services.volume.core.specs.csi_attachment import publish_context_of, secret_of
from services.volume.core.specs.csi_volume import (
    CsiVolume,
    attachment_name,
    inline_volume,
    persistent_csi_volume,
    publish_context,
    refused_mode,
)
from services.volume.core.specs.persistent_volume import PersistentVolume

POD: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
    "spec": {"serviceAccountName": "builder", "securityContext": {"fsGroup": 7}},
}


def persistent(source: Any = None, driver: Any = None, **spec: Any) -> CsiVolume:
    """A PersistentVolume of the driver `d` with the handle `h`."""
    volume = PersistentVolume(name="pv", spec={"accessModes": ["ReadWriteOnce"], **spec}, annotations={}, claim={})
    csi = {"driver": "d", "volumeHandle": "h", **(source or {})}
    return persistent_csi_volume(POD, volume, csi, "n", None if driver is None else {"spec": driver})


def attached(**found: Any) -> SetUpInputs:
    key = ObjectKey("VolumeAttachment", "", attachment_name("h", "d", "n"))
    return SetUpInputs(objects={key: FoundObject(**found)})


@pytest.mark.parametrize(
    ("modes", "multi_writer", "mode"),
    [
        ([], False, "SINGLE_NODE_WRITER"),
        (["ReadWriteOnce", "ReadWriteMany"], False, "SINGLE_NODE_WRITER"),
        (["ReadOnlyMany"], True, "MULTI_NODE_READER_ONLY"),
        (["ReadWriteMany"], True, "MULTI_NODE_MULTI_WRITER"),
        (["ReadWriteOncePod"], False, "SINGLE_NODE_WRITER"),
        (["ReadWriteOncePod"], True, "SINGLE_NODE_SINGLE_WRITER"),
        (["ReadWriteOnce"], True, "SINGLE_NODE_MULTI_WRITER"),
        (["Unheard"], True, "UNKNOWN"),
    ],
)
def test_the_first_access_mode_counts(modes: list[str], multi_writer: bool, mode: str) -> None:
    assert persistent(accessModes=modes).access_mode(multi_writer=multi_writer) == mode


@pytest.mark.parametrize(
    ("policy", "spec", "source", "applies"),
    [
        (None, {}, {"fsType": "ext4"}, True),
        (None, {}, {}, False),
        (None, {"accessModes": ["ReadWriteMany"]}, {"fsType": "ext4"}, False),
        (None, {"accessModes": ["ReadOnlyMany", "ReadWriteOncePod"]}, {"fsType": "ext4"}, True),
        ("ReadWriteOnceWithFSType", {}, {"fsType": "ext4", "readOnly": True}, False),
        ("File", {"accessModes": ["ReadWriteMany"]}, {}, True),
        ("None", {}, {"fsType": "ext4"}, False),
    ],
)
def test_the_fs_group_is_applied_by_policy(policy: str | None, spec: Any, source: Any, applies: bool) -> None:
    driver = None if policy is None else {"fsGroupPolicy": policy}
    assert persistent(source, driver, **spec).applies_fs_group() is applies


def test_an_attachment_is_needed_unless_the_csi_driver_needs_none() -> None:
    assert persistent().attachment == "csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d"
    assert persistent(driver={"attachRequired": True}).attachment
    assert not persistent(driver={"attachRequired": False}).attachment


def test_the_metadata_of_an_attached_volume_is_the_publish_context() -> None:
    status = {"attached": True, "attachmentMetadata": {"device": "/dev/x"}}
    assert publish_context_of(persistent(), attached(object={"status": status})) == {"device": "/dev/x"}
    assert publish_context_of(persistent(driver={"attachRequired": False}), SetUpInputs()) == {}


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({"problem": Problem("not there")}, "volume h has GET error for volume attachment {name}: not there"),
        ({"object": {"metadata": {"deletionTimestamp": "now"}}}, "volume attachment is being deleted"),
        ({"object": {"status": {"attachError": {"message": "no room"}}}}, "no room"),
        ({"object": {"status": {"attached": False}}}, "volume h is not attached for volume attachment {name}"),
        ({"object": {"status": 7}}, "volume h is not attached for volume attachment {name}"),
    ],
)
def test_a_volume_that_is_not_attached_is_an_error_with_the_reason(found: Any, text: str) -> None:
    with pytest.raises(ContentError) as raised:
        publish_context_of(persistent(), attached(**found))
    assert str(raised.value) == text.format(name=attachment_name("h", "d", "n"))


def test_a_secret_is_decoded_and_its_errors_show_no_value() -> None:
    key = ObjectKey("VolumeSecret", "shop", "s")
    good = SetUpInputs(objects={key: FoundObject({"data": {"user": "YWRtaW4="}})})
    assert secret_of(key, "NodeStageSecretRef", good) == {"user": "admin"}
    bad = SetUpInputs(objects={key: FoundObject({"data": {"user": "hunter2!"}})})
    with pytest.raises(ContentError) as raised:
        secret_of(key, "NodeStageSecretRef", bad)
    assert str(raised.value) == "fetching NodeStageSecretRef shop/s failed: value of key user is not base64"
    assert "admin" not in repr(good) and "hunter2" not in repr(bad)


@pytest.mark.parametrize("in_secrets", [False, True])
def test_tokens_are_in_the_context_or_in_the_secrets(in_secrets: bool) -> None:
    driver = {"tokenRequests": [{"audience": ""}, {"audience": "v", "expirationSeconds": 600}]}
    volume = persistent(driver={**driver, "serviceAccountTokenInSecrets": in_secrets})
    tokens = {key: FoundToken(f"jwt-{audience}", expiration="then") for audience, key in volume.tokens}
    made = publish_context(volume, SetUpInputs(tokens=tokens), {"own": "x"})
    text = '{"":{"token":"jwt-","expirationTimestamp":"then"},"v":{"token":"jwt-v","expirationTimestamp":"then"}}'
    added = {"csi.storage.k8s.io/serviceAccount.tokens": text}
    assert made.secrets == ({"own": "x", **added} if in_secrets else {"own": "x"})
    assert made.volume == ({} if in_secrets else added)
    assert "jwt" not in repr(SetUpInputs(tokens=tokens))


@pytest.mark.parametrize(
    ("driver", "mode", "reason"),
    [
        (None, "Persistent", ""),
        (None, "Ephemeral", 'volume mode "Ephemeral" not supported by driver d (no CSIDriver object)'),
        ({"spec": {}}, "Persistent", ""),
        ({"spec": {"volumeLifecycleModes": ["Persistent", "Ephemeral"]}}, "Ephemeral", ""),
        (
            {"spec": {"volumeLifecycleModes": ["Ephemeral"]}},
            "Persistent",
            'volume mode "Persistent" not supported by driver d (only supports ["Ephemeral"])',
        ),
        ({"spec": {"volumeLifecycleModes": 3}}, "Persistent", 'volume mode "Persistent" not supported by driver d '),
    ],
)
def test_a_driver_takes_the_volumes_of_its_lifecycle_modes(driver: Any, mode: str, reason: str) -> None:
    found = refused_mode("d", driver, mode)
    assert found.startswith(reason) and bool(found) is bool(reason)


def test_an_inline_volume_has_a_handle_of_its_pod_and_is_not_staged() -> None:
    source = {"driver": "d", "nodePublishSecretRef": {"name": "s"}, "volumeAttributes": {"a": 1}}
    volume = inline_volume(POD, "v", source, "n", {"spec": {"podInfoOnMount": True}})
    assert volume.handle == "csi-e6184ce10e266134fdcfa401e8f1a95005bcd4f18d16b62b757323e2833fe9a9"
    assert volume.volume_name == ""
    assert volume.publish_secret == ObjectKey("Secret", "shop", "s")
    assert dict(volume.pod_info)["csi.storage.k8s.io/ephemeral"] == "true"
    assert volume.attributes == (("a", "1"),)
    assert inline_volume(POD, "w", source, "n", None).handle != volume.handle
