"""How far the pull of an image is: which blobs of the content store belong to it, how many of their bytes are there.

Pure. The store names the repository of a blob, not the image; `manifests_of` returns the manifests that can be those
of the image.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from services.podsync.core.images.image_repository import repository
from shared.cri.interface import Blob
from shared.model.frozen_copy import replace

MANIFEST_BYTES = 4 * 1024 * 1024
RATE_SECONDS = 10.0  # the rate is that of the last 10 s
LOOKS = 8  # layers looked for at a time: a runtime fetches them in order
_MOST_LAYERS = 512
_MOST_SHARED = 8  # images named
_LAYER_LABEL = "containerd.io/gc.ref.content.l."  # of a manifest, for each layer
_MANIFEST_LABEL = "containerd.io/gc.ref.content.m."  # of an index, for each manifest
_CLOCK_SECONDS = 1.0  # the store's times and ours may differ by this


@dataclass(frozen=True)
class Layer:
    """A layer as the manifest names it; `size` in bytes."""

    digest: str
    size: int


@dataclass(frozen=True, kw_only=True)
class PullProgress:
    """One image that is being pulled. `began`: CLOCK_MONOTONIC seconds; `began_wall`: seconds since the epoch."""

    image: str
    began: float
    began_wall: float
    manifests: frozenset[str] = frozenset()  # digests; empty = not known yet
    layers: tuple[Layer, ...] = ()
    shared_with: tuple[str, ...] = ()  # images whose layers cannot be distinguished from these
    present: frozenset[str] = frozenset()  # digests of layers that are complete
    looked: bool = False  # every layer was looked for once
    arrived: int = 0  # bytes of all layers that are there
    samples: tuple[tuple[float, int], ...] = field(default=())  # (now, arrived) of the last 10 s
    grew_at: float = 0.0  # when the first bytes or more of them were seen, 0 = never

    @property
    def total(self) -> int:
        """Bytes of all layers; 0 = not known yet."""
        return sum(layer.size for layer in self.layers)

    def rate(self) -> float:
        """Bytes per second."""
        (first, before), (last, now) = self.samples[0], self.samples[-1]
        return (now - before) / (last - first) if last > first else 0.0


def source_of(image: str) -> tuple[str, str]:
    """The host without its port and the repository that the store names for the image's blobs."""
    host, _, path = repository(image).partition("/")
    return host.partition(":")[0], path


def manifests_of(progress: PullProgress, blobs: Sequence[Blob], fetched: Collection[str]) -> frozenset[str]:
    """Digests of the manifests that can be the image's, among the blobs of its repository. A pull by digest names its
    own; one by tag has created it, or an earlier pull has: then it names a blob that is being `fetched`."""
    manifests = [blob for blob in blobs if _has(blob, _LAYER_LABEL) and blob.size <= MANIFEST_BYTES]
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
    """The pulls of one repository whose manifests were not known, with their manifests, in the same order. `known`: the
    other pulls, whose manifests are not taken for those of another image while there is a further one. Pulls that
    began together and cannot be distinguished share their manifests, and name each other."""
    taken = {digest for one in known for digest in one.manifests}
    found = {one.image: manifests_of(one, blobs, fetched) for one in unknown}
    found = {image: manifests - taken or manifests for image, manifests in found.items()}
    return [
        replace(
            one,
            manifests=found[one.image],
            shared_with=tuple(
                sorted(image for image in found if image != one.image and found[image] & found[one.image])
            )[:_MOST_SHARED]
            if len(found[one.image]) > 1
            else (),
        )
        for one in unknown
    ]


def layers_of(manifest: bytes) -> tuple[Layer, ...]:
    """The layers that a manifest names; () for anything else."""
    try:
        found = json.loads(manifest)["layers"]
        layers = {str(one["digest"]): max(int(one["size"]), 0) for one in found[:_MOST_LAYERS]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(Layer(digest, size) for digest, size in layers.items())


def missing(progress: PullProgress, ingests: Mapping[str, int]) -> list[str]:
    """Digests of the layers to look for: neither known to be present nor among `ingests` (digest -> bytes). At first
    all, then the next few."""
    found = [layer.digest for layer in progress.layers if layer.digest not in progress.present | ingests.keys()]
    return found[:LOOKS] if progress.looked else found


def advanced(progress: PullProgress, now: float, ingests: Mapping[str, int], present: Collection[str]) -> PullProgress:
    """The progress at `now`. `ingests`: digest -> bytes that are there; `present`: layers found complete."""
    complete = progress.present | set(present)
    arrived = sum(
        layer.size if layer.digest in complete else min(ingests.get(layer.digest, 0), layer.size)
        for layer in progress.layers
    )
    samples = (*(one for one in progress.samples if one[0] >= now - RATE_SECONDS), (now, arrived))
    grew = arrived > progress.arrived
    return replace(
        progress,
        present=complete,
        looked=bool(progress.layers),
        arrived=arrived,
        samples=samples if progress.looked else ((now, arrived),),
        grew_at=now if grew else progress.grew_at,
    )


def _has(blob: Blob, prefix: str) -> bool:
    return any(label.startswith(prefix) for label in blob.labels)
