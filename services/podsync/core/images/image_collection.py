"""Decides which images are unused, which of them are removed, and how many bytes must become free (node.md 6.1).
Moments are seconds of CLOCK_MONOTONIC."""

from collections.abc import Iterable, Mapping, Set

from msgspec import Struct

from services.podsync.core.images.image_repository import repository
from shared.cri.interface import ImageStatus
from shared.model.frozen_copy import replace


class ImageHistory(Struct, frozen=True, kw_only=True):
    """Has when this process saw and used an image. A restart loses both, as in the kubelet."""

    first_seen: float
    last_used: float | None = None  # None = not used since this process began


Histories = Mapping[str, ImageHistory]  # by image id


class ImageGCPolicy(Struct, frozen=True, kw_only=True):
    """Has the configuration. Ages are seconds; `maximum_age` 0 = no limit. Percentages are of the filesystem's use."""

    minimum_age: float
    maximum_age: float
    high_percent: int
    low_percent: int

    @property
    def is_off(self) -> bool:
        """Whether images are removed only under disk pressure."""
        return self.high_percent == 100 and self.maximum_age == 0


def updated(before: Histories, images: Iterable[ImageStatus], used: Set[str], now: float) -> dict[str, ImageHistory]:
    """Return the histories of the images that are present. `used`: ids and names that containers and volumes refer
    to."""
    histories = {}
    for image in images:
        history = before.get(image.id) or ImageHistory(first_seen=now)
        histories[image.id] = replace(history, last_used=now) if is_used(image, used) else history
    return histories


def is_used(image: ImageStatus, used: Set[str]) -> bool:
    """Return whether the image's id, or one of its names, is used."""
    return not used.isdisjoint((image.id, *image.repo_tags, *image.repo_digests))


def names_of(reference: str) -> set[str]:
    """Return the reference as it is, and in full, as the runtime lists it."""
    name, at, digest = reference.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return {
        reference,
        f"{repository(reference)}{at}{digest}" if digest else f"{repository(reference)}:{tag or 'latest'}",
    }


def removable(
    images: Iterable[ImageStatus], histories: Histories, used: Set[str], now: float, minimum_age: float
) -> list[ImageStatus]:
    """Return the unused images that were first seen at least `minimum_age` seconds ago and are not pinned; the one that
    was not used for the longest time is the first."""
    unused = [
        image
        for image in images
        if not image.pinned and not is_used(image, used) and now - histories[image.id].first_seen >= minimum_age
    ]
    return sorted(unused, key=lambda image: _age(histories[image.id]))


def too_old(images: Iterable[ImageStatus], histories: Histories, now: float, maximum_age: float) -> list[ImageStatus]:
    """Return those of removable images that were not used for longer than `maximum_age`, which counts from the start of
    the process."""
    return [image for image in images if now - (histories[image.id].last_used or 0.0) > maximum_age]


def bytes_to_free(capacity: int, available: int, policy: ImageGCPolicy) -> int:
    """Return the bytes to free so that the use falls to the low threshold; 0 = it is below the high one."""
    available = min(available, capacity)
    if used_percent(capacity, available) < policy.high_percent:
        return 0
    return capacity * (100 - policy.low_percent) // 100 - available


def used_percent(capacity: int, available: int) -> int:
    """Return the use of a filesystem of `capacity` bytes in percent, as the kubelet rounds it."""
    return 100 - available * 100 // capacity


def not_freed(capacity: int, available: int, freed: int) -> str:
    """Return the message for a filesystem on which too little could be freed. All arguments are bytes."""
    return (
        f"Insufficient free disk space on the node's image filesystem ({used_percent(capacity, available)}% of "
        f"{human_size(capacity)} used). Failed to free sufficient space by deleting unused images (freed {freed} "
        "bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
    )


def human_size(count: float) -> str:
    """Return the bytes with a decimal unit, four digits at most."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if count < 1000 or unit == "PB":
            break
        count /= 1000
    return f"{count:.4g}{unit}"


def _age(history: ImageHistory) -> tuple[float, float]:
    never = float("-inf")
    return (never if history.last_used is None else history.last_used, history.first_seen)
