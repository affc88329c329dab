"""Computes how far the pull of an image is from the blobs of the content store that belong to it.
Pure. The store names the repository of a blob, not the image; `manifests_of` returns the manifests that can be those
of the image.
"""

import json
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, field

from services.podsync.core.images.image_repository import repository
from shared.cri.interface import Blob
from shared.model.frozen_copy import replace

MAX_MANIFEST_BYTES = 4 * 1024 * 1024
RATE_SECONDS = 10.0  # over which the rate is computed
MAX_LOOKS = 8  # layers looked for at a time: a runtime fetches them in order
_MAX_LAYERS = 512
_MAX_SHARED_NAMES = 8  # of images
_LAYER_LABEL = "containerd.io/gc.ref.content.l."  # of a manifest, for each layer
_MANIFEST_LABEL = "containerd.io/gc.ref.content.m."  # of an index, for each manifest
_CLOCK_SECONDS = 1.0  # the store's times and ours may differ by this


class Layer(Struct, frozen=True):
    """Has a layer of the manifest; `size` in bytes."""

    digest: str
    size: int


class PullProgress(Struct, frozen=True, kw_only=True):
    """Has an image that is being pulled. `began`: CLOCK_MONOTONIC seconds; `began_wall`: seconds since the epoch."""

    image: str
    began: float
    began_wall: float
    manifests: frozenset[str] = frozenset()  # digests; empty = not known yet
    layers: tuple[Layer, ...] = ()
    shared_with: tuple[str, ...] = ()  # images whose layers cannot be distinguished from these
    present: frozenset[str] = frozenset()  # digests of layers that are complete
    looked: bool = False  # whether every layer was looked for once
    arrived: int = 0  # bytes of all layers that are present
    samples: tuple[tuple[float, int], ...] = field(default=())  # (now, arrived) of the last 10 s
    grew_at: float = 0.0  # when more bytes were seen last, 0 = never

    @property
    def total(self) -> int:
        """The bytes of all layers; 0 = not known yet."""
        return sum(layer.size for layer in self.layers)

    def rate(self) -> float:
        """Return the bytes per second."""
        (first, before), (last, now) = self.samples[0], self.samples[-1]
        return (now - before) / (last - first) if last > first else 0.0


def source_of(image: str) -> tuple[str, str]:
    """Return the host without its port and the repository that the store names for the image's blobs."""
    host, _, path = repository(image).partition("/")
    return host.partition(":")[0], path


def manifests_of(progress: PullProgress, blobs: Sequence[Blob], fetched: Collection[str]) -> frozenset[str]:
    """Return the digests of the manifests that can be the image's, among the blobs of its repository. A pull by digest
    names its manifest. A pull by tag has created it, or an earlier pull has: then it names a blob that is being
    `fetched`."""
    manifests = [blob for blob in blobs if _has(blob, _LAYER_LABEL) and blob.size <= MAX_MANIFEST_BYTES]
    digest = progress.image.partition("@")[2]
    if digest:
        index = next((blob for blob in blobs if blob.digest == digest and _has(blob, _MANIFEST_LABEL)), None)
        named = {digest} | set(index.labels.values() if index else ())
        return frozenset(blob.digest for blob in manifests if blob.digest in named)
    created = [blob for blob in manifests if blob.created_at >= progress.began_wall - _CLOCK_SECONDS]
    resumed = [blob for blob in manifests if not set(fetched).isdisjoint(blob.labels.values())]
    return frozenset(blob.digest for blob in created or resumed)


def identified(
    unknown: Sequence[PullProgress], known: Sequence[PullProgress], blobs: Sequence[Blob], fetched: Collection[str]
) -> list[PullProgress]:
    """Return the pulls of one repository whose manifests were not known, with their manifests, in the same order.
    `known`: the other pulls, whose manifests are not taken for those of another image while there is a further one.
    Pulls that began together and cannot be distinguished share their manifests, and name each other."""
    taken = {digest for pull in known for digest in pull.manifests}
    manifests: dict[str, frozenset[str]] = {}
    for pull in unknown:
        candidates = manifests_of(pull, blobs, fetched)
        manifests[pull.image] = candidates - taken or candidates
    pulls = []
    for pull in unknown:
        own = manifests[pull.image]
        shared = sorted(image for image in manifests if image != pull.image and manifests[image] & own)
        shared_with = tuple(shared[:_MAX_SHARED_NAMES]) if len(own) > 1 else ()
        pulls.append(replace(pull, manifests=own, shared_with=shared_with))
    return pulls


def layers_of(manifest: bytes) -> tuple[Layer, ...]:
    """Return the layers that a manifest names; () for anything else."""
    try:
        listed = json.loads(manifest)["layers"]
        layers = {str(layer["digest"]): max(int(layer["size"]), 0) for layer in listed[:_MAX_LAYERS]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(Layer(digest, size) for digest, size in layers.items())


def missing(progress: PullProgress, ingests: Mapping[str, int]) -> list[str]:
    """Return the digests of the layers to look for, which are neither known to be present nor among `ingests` (digest
    -> bytes): at first all, then the next few."""
    digests = [layer.digest for layer in progress.layers if layer.digest not in progress.present | ingests.keys()]
    return digests[:MAX_LOOKS] if progress.looked else digests


def advanced(progress: PullProgress, now: float, ingests: Mapping[str, int], present: Collection[str]) -> PullProgress:
    """Return the progress at `now`. `ingests`: digest -> bytes that are present; `present`: digests of complete
    layers."""
    complete = progress.present | set(present)
    arrived = sum(
        layer.size if layer.digest in complete else min(ingests.get(layer.digest, 0), layer.size)
        for layer in progress.layers
    )
    samples = (*(sample for sample in progress.samples if sample[0] >= now - RATE_SECONDS), (now, arrived))
    return replace(
        progress,
        present=complete,
        looked=bool(progress.layers),
        arrived=arrived,
        samples=samples if progress.looked else ((now, arrived),),
        grew_at=now if arrived > progress.arrived else progress.grew_at,
    )


def _has(blob: Blob, prefix: str) -> bool:
    return any(label.startswith(prefix) for label in blob.labels)
