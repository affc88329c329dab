"""Decides the content of `node.images`, and whether an observed pod names an image that is not listed yet."""

from collections.abc import Iterable

from bus.messages.pleg import NodeImage, NodeImages
from shared.cri.interface import ImageStatus
from shared.model.runtime import RuntimePod


class ImageList:
    """The newest list, and which unknown images were asked for since."""

    def __init__(self) -> None:
        self._names: frozenset[str] | None = None  # every id and name listed, None = never listed
        self._asked: set[str] = set()

    def listed(self, images: Iterable[ImageStatus]) -> NodeImages:
        """ListImages answered: what to publish, largest first, ties by id descending (node.md 1.6)."""
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
        """A container of the pod has an image that was not listed: it was pulled since. Asked once for each image."""
        if self._names is None:
            return False
        unknown = {c.image_id for c in pod.containers if c.image_id and c.image_id not in self._names} - self._asked
        self._asked |= unknown
        return bool(unknown)

    def period_began(self) -> None:
        """What was asked for may be asked for again."""
        self._asked.clear()
