"""Makes small OCI images from Debian's static busybox, so that the first run and the tests need no registry.

Knows the OCI image layout and nothing of the agent. The same busybox gives the same bytes, and so the same image id."""

import hashlib
import io
import json
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from shared.errors import OperatorError

BUSYBOX = Path("/bin/busybox")
BUSYBOX_IMAGE = "localhost/bulkhead/busybox:1"
PAUSE_IMAGE = "localhost/bulkhead/pause:1"
ARCHITECTURES = {62: "amd64", 183: "arm64"}  # ELF e_machine -> GOARCH

# The shell reaps the orphans of a shared PID namespace while it waits, as a pause process must.
PAUSE_COMMAND = ("/bin/sh", "-c", "trap 'exit 0' TERM INT; sleep infinity & wait")


@dataclass(frozen=True, kw_only=True)
class Image:
    """The content of an image besides busybox. `files`: absolute path -> (content, mode)."""

    name: str
    command: tuple[str, ...]
    user: str = ""
    environment: tuple[str, ...] = ("PATH=/bin",)
    working_dir: str = ""
    volumes: tuple[str, ...] = ()
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)


BUSYBOX_CONTENT = Image(
    name=BUSYBOX_IMAGE,
    command=("/bin/sh",),
    files={
        "/etc/passwd": (b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n", 0o644),
        "/etc/group": (b"root:x:0:\nnogroup:x:65534:\n", 0o644),
    },
)
PAUSE_CONTENT = Image(name=PAUSE_IMAGE, command=PAUSE_COMMAND)


def read_busybox(path: Path = BUSYBOX) -> tuple[bytes, list[str]]:
    """Return the binary and the names of its applets.

    Raises OperatorError when it is missing, or linked dynamically and so of no use alone in an image.
    """
    remedy = "install the Debian package busybox-static"
    if not path.exists():
        raise OperatorError("no busybox to build the example images from", where=str(path), remedy=remedy)
    binary = path.read_bytes()
    if b"/ld-linux" in binary or b"/ld-musl" in binary:
        raise OperatorError("this busybox is linked dynamically", where=str(path), remedy=remedy)
    listed = subprocess.run([path, "--list"], check=True, capture_output=True, text=True)
    return binary, sorted(set(listed.stdout.split()) - {"busybox"})


def archive(image: Image, busybox: bytes, applets: list[str]) -> bytes:
    """Return the image as an OCI layout in an uncompressed tar, as `ctr images import` and `docker load` read it."""
    architecture = ARCHITECTURES.get(int.from_bytes(busybox[18:20], "little"), "amd64")
    return archive_of_layer(image, _layer(image, busybox, applets), architecture)


def archive_of_layer(image: Image, layer: bytes, architecture: str, zipped: bytes | None = None) -> bytes:
    """Return an image whose only layer is this tar, as `archive` does; `image.files` is not used. `zipped`: the tar
    compressed by gzip, where the image should contain that."""
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Cmd": list(image.command),
            "Env": list(image.environment),
            **({"User": image.user} if image.user else {}),
            **({"WorkingDir": image.working_dir} if image.working_dir else {}),
            **({"Volumes": {path: {} for path in image.volumes}} if image.volumes else {}),
        },
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    config_blob, layer_blob = blobs = [_json(config), layer if zipped is None else zipped]
    layer_type = "application/vnd.oci.image.layer.v1.tar" + ("" if zipped is None else "+gzip")
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", config_blob),
            "layers": [_descriptor(layer_type, layer_blob)],
        }
    )
    annotations = {
        "io.containerd.image.name": image.name,
        "org.opencontainers.image.ref.name": image.name.rpartition(":")[2],
    }
    described = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    index = {"schemaVersion": 2, "manifests": [{**described, "annotations": annotations}]}
    paths = ["blobs/sha256/" + _digest(blob).removeprefix("sha256:") for blob in (*blobs, manifest)]
    saved = {"Config": paths[0], "RepoTags": [image.name], "Layers": [paths[1]]}  # for Docker before 25
    members = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        "manifest.json": _json([saved]),
        **dict(zip(paths, (*blobs, manifest), strict=True)),
    }
    return _tar([(_entry(name, 0o644), content) for name, content in members.items()])


def _layer(image: Image, busybox: bytes, applets: list[str]) -> bytes:
    entries: list[tuple[tarfile.TarInfo, bytes]] = []
    for name, mode in (("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777), ("var", 0o755)):
        entry = _entry(name, mode)
        entry.type = tarfile.DIRTYPE
        entries.append((entry, b""))
    entries.append((_entry("bin/busybox", 0o755), busybox))
    for applet in applets:
        entry = _entry(f"bin/{applet}", 0o777)
        entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
        entries.append((entry, b""))
    for path, (content, mode) in sorted(image.files.items()):
        entries.append((_entry(path.lstrip("/"), mode), content))
    return _tar(entries)


def _entry(name: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode = mode  # times and owners stay 0
    return entry


def _tar(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for entry, content in entries:
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _descriptor(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
