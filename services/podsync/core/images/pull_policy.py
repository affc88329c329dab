"""Image names, pull policy and pull back-off of one pod's containers and image volumes (pods.md 7.1, 7.3)."""

import re
from dataclasses import replace
from typing import Any

from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.saved import ImageBackoff
from shared.backoff import Backoff
from shared.podspec.image_name import default_pull_policy

PULLS = Backoff(initial=10.0, cap=300.0, reset_after=600.0)

REGISTRY_ERRORS = {
    "RegistryUnavailable": "the registry is unavailable",
    "SignatureValidationFailed": "the signature validation failed",
}
PULL_ERRORS = ("ErrImagePull", *REGISTRY_ERRORS)  # waiting reasons: why a pull failed, as against that it waits

LONGEST = 1024  # characters of an image with registry, tag and digest; each part has a smaller limit of its own

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = rf"(?:{_DOMAIN}/)?{_PART}(?:/{_PART})*"
_REFERENCE = re.compile(rf"^({_NAME})(?::([\w][\w.-]{{0,127}}))?(?:@([A-Za-z][A-Za-z0-9]*:[0-9a-fA-F]{{32,}}))?$")


class InvalidImageNameError(Exception):
    """The image cannot be parsed; the text is the kubelet's message."""


def with_default_tag(image: str) -> str:
    """The image as asked of the runtime: `:latest` where neither tag nor digest is given."""
    match = _REFERENCE.match(image) if len(image) <= LONGEST else None
    if match is None:
        why, image = "invalid reference format", image[:LONGEST]
        if re.match(r"^[^@]*[A-Z]", image.split(":", maxsplit=1)[0]):
            name = image.split(":", maxsplit=1)[0]
            shown = name if "/" in name else f"library/{name}"
            why += f": repository name ({shown}) must be lowercase"
        raise InvalidImageNameError(
            f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {why}'
        )
    return image if match.group(2) or match.group(3) else f"{image}:latest"


def pull_policy(container: dict[str, Any]) -> str:
    """Always, IfNotPresent or Never; the API's default where the spec has none."""
    return str(container.get("imagePullPolicy") or default_pull_policy(str(container.get("image", ""))))


def volume_key(volume: str) -> str:
    """Where a volume's image stands among those of the containers, whose names have no slash."""
    return f"volume/{volume}"


def registry_error(image: str, text: str) -> tuple[str, str]:
    """Waiting reason and message for a failed pull whose error text is this: the runtime names two of them."""
    for reason, because in REGISTRY_ERRORS.items():
        if text.startswith(reason):
            return reason, f"image pull failed for {image} because {because}{text.removeprefix(reason)}"
    return "ErrImagePull", text


def pull_waits_until(record: PodRecord, image: str) -> float:
    """Steady seconds until which pulling this image for this pod waits, 0 when it need not."""
    entry = record.saved.image_backoff.get(image)
    return entry.updated + entry.seconds if entry else 0.0


def count_pull_failure(record: PodRecord, image: str, message: str, *, now: float) -> None:
    """Note a failed pull: the next one waits 10 s, then twice as long each time up to 300 s."""
    # Without those of images that the pod no longer names: the record must not grow with every edit of the spec.
    kept = {i: e for i, e in record.saved.image_backoff.items() if not PULLS.is_reset(e.updated, now)}
    entry = kept.get(image)
    seconds = PULLS.next_delay(0.0 if entry is None else entry.seconds)
    kept[image] = ImageBackoff(seconds=seconds, updated=now, message=message)
    record.saved = replace(record.saved, image_backoff=kept)
