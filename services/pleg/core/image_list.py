"""Decides the content of `node.images`, and whether an observed pod names an image that is not listed yet."""

from collections.abc import Iterable

from bus.messages.pleg import NodeImage, NodeImages
from shared.cri.interface import ImageStatus
from shared.model.runtime import RuntimePod


class ImageList:
    """Has the newest list, and the unknown images that caused a list since."""

    def __init__(self) -> None:
        self._names: frozenset[str] | None = None  # ids and names in the list, None = never listed
        self._requested: set[str] = set()

    def listed(self, images: Iterable[ImageStatus]) -> NodeImages:
        """Take a new list and return what to publish: largest first, equal sizes by id descending (node.md 1.6)."""
        ordered = sorted(images, key=lambda image: (image.size, image.id), reverse=True)
        names = {name for image in ordered for name in (image.id, *image.repo_digests, *image.repo_tags)}
        self._names = frozenset(names)
        return NodeImages(
            images=tuple(
                NodeImage(id=image.id, names=(*image.repo_digests, *image.repo_tags), size_bytes=image.size)
                for image in ordered
            )
        )

    def is_news(self, pod: RuntimePod) -> bool:
        """Return whether a container of the pod has an image that was pulled since the list; True once for each
        image."""
        if self._names is None:
            return False
        unknown = {c.image_id for c in pod.containers if c.image_id and c.image_id not in self._names} - self._requested
        self._requested |= unknown
        return bool(unknown)

    def period_began(self) -> None:
        """Let unknown images cause a list again."""
        self._requested.clear()
