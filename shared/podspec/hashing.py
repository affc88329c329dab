"""Hashes that the kubelet writes where it, or another kubelet, reads them again (pods.md 6.2, 7.2)."""

import json
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from zlib import crc32

from shared.model.objects import Object, name, namespace, uid
from shared.podspec.go_json import go_json

_MAX_BYTES = 4096  # that the hashes below, loops of a microsecond per byte, are good for


def _fnv1a(data: bytes, state: int, prime: int, bits: int) -> int:
    mask = (1 << bits) - 1
    for byte in data:
        state = ((state ^ byte) * prime) & mask
    return state


def fnv32a(data: bytes) -> int:
    """Return the FNV-1a hash of 32 bits."""
    return _fnv1a(data, 0x811C9DC5, 0x01000193, 32)


def fnv64a(data: bytes) -> int:
    """Return the FNV-1a hash of 64 bits."""
    return _fnv1a(data, 0xCBF29CE484222325, 0x100000001B3, 64)


def fnv128a(data: bytes) -> int:
    """Return the FNV-1a hash of 128 bits."""
    return _fnv1a(data, 0x6C62272E07BB014262B821756295C58D, 0x0000000001000000000000000000013B, 128)


def container_hash(container: Mapping[str, Any]) -> str:
    """Annotation io.kubernetes.container.hash: a running container whose hash differs is restarted, so this is Go's
    dump of the bytes of `{"image":…,"name":…}`, not ours to choose. A text longer than any image has a cheap hash: no
    container was ever made from it."""
    image, name_ = str(container.get("image") or ""), str(container.get("name") or "")
    if len(image) > _MAX_BYTES:
        return f"{crc32(image.encode('utf-8', 'surrogatepass')):x}"
    return _container_hash(image, name_)


@lru_cache(1024)
def _container_hash(image: str, name: str) -> str:
    described = go_json({"image": image, "name": name})
    dump = " ".join(str(byte) for byte in described.encode())
    return f"{fnv32a(f'([]uint8)[{dump}]'.encode()):x}"


def content_hash(*parts: Any) -> int:
    """Return a hash of 128 bits over JSON values and texts, the same for equal contents whatever the order of keys."""
    written = (
        part if isinstance(part, str) else json.dumps(part, sort_keys=True, separators=(",", ":")) for part in parts
    )
    return fnv128a("".join(written).encode("utf-8", "surrogatepass"))


def backoff_key(pod: Object, container: Mapping[str, Any]) -> str:
    """Key of a container's crash-loop back-off: another image or other resources start afresh. Never leaves this
    agent, so the resources are written in our own way."""
    resources = json.dumps(container.get("resources") or {}, sort_keys=True, separators=(",", ":"))
    parts = (name(pod), namespace(pod), uid(pod), container.get("name") or "", container.get("image") or "", resources)
    key = "/".join(parts).encode("utf-8", "surrogatepass")
    return blake2b(key, digest_size=8).hexdigest() if len(key) > _MAX_BYTES else f"{fnv64a(key):x}"
