"""Images made from busybox are sound OCI layouts, and the same every time."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from shared.errors import OperatorError
from tools.oci_image import Image, archive, archive_of_layer, read_busybox

BINARY = b"\x7fELF" + b"\0" * 14 + b"\x3e\x00" + b"the binary"
IMAGE = Image(name="localhost/some/image:7", command=("/bin/sh",), user="65534", files={"/etc/motd": (b"hi", 0o640)})


def members(tar: bytes) -> dict[str, bytes]:
    """File name -> content."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        return {entry.name: opened.extractfile(entry).read() for entry in opened if entry.isfile()}  # type: ignore[union-attr]


def follow(blobs: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """The blob of a descriptor, after checking its digest and size."""
    blob = blobs["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
    assert (hashlib.sha256(blob).hexdigest(), len(blob)) == (descriptor["digest"][7:], descriptor["size"])
    return blob


def test_every_descriptor_leads_to_its_blob_and_the_image_has_its_name() -> None:
    blobs = members(archive(IMAGE, BINARY, ["sh"]))
    described = json.loads(blobs["index.json"])["manifests"][0]
    assert described["annotations"]["io.containerd.image.name"] == "localhost/some/image:7"
    manifest = json.loads(follow(blobs, described))
    config = json.loads(follow(blobs, manifest["config"]))
    assert (config["architecture"], config["config"]["User"]) == ("amd64", "65534")
    layer = follow(blobs, manifest["layers"][0])
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
    assert members(layer) == {"bin/busybox": BINARY, "etc/motd": b"hi"}


def test_every_applet_is_a_link_to_busybox() -> None:
    blobs = members(archive(IMAGE, BINARY, ["ls", "sh"]))
    manifest = json.loads(follow(blobs, json.loads(blobs["index.json"])["manifests"][0]))
    with tarfile.open(fileobj=io.BytesIO(follow(blobs, manifest["layers"][0]))) as layer:
        links = {entry.name: entry.linkname for entry in layer if entry.issym()}
    assert links == {"bin/ls": "busybox", "bin/sh": "busybox"}


def test_a_compressed_layer_is_found_by_its_digest_and_named_by_that_of_its_content() -> None:
    layer = b"a tar"
    zipped = gzip.compress(layer, mtime=0)
    blobs = members(archive_of_layer(IMAGE, layer, "arm64", zipped))
    manifest = json.loads(follow(blobs, json.loads(blobs["index.json"])["manifests"][0]))
    assert manifest["layers"][0]["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
    assert follow(blobs, manifest["layers"][0]) == zipped
    config = json.loads(follow(blobs, manifest["config"]))
    assert config["architecture"] == "arm64"
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]


def test_the_same_busybox_gives_the_same_image() -> None:
    assert archive(IMAGE, BINARY, ["sh"]) == archive(IMAGE, BINARY, ["sh"])


def test_a_missing_busybox_is_reported_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="install the Debian package busybox-static"):
        read_busybox(tmp_path / "busybox")


def test_a_dynamically_linked_busybox_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "busybox"
    path.write_bytes(b"\x7fELF /lib64/ld-linux-x86-64.so.2")
    with pytest.raises(OperatorError, match="linked dynamically"):
        read_busybox(path)
