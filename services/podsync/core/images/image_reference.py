"""Parses the image that a container or an image volume names: its reference and its pull policy (pods.md 7.1)."""

import re
from typing import Any

from shared.podspec.image_name import default_pull_policy

MAX_IMAGE_CHARACTERS = 1024  # with registry, tag and digest; each part has a smaller limit of its own

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = rf"(?:{_DOMAIN}/)?{_PART}(?:/{_PART})*"
_REFERENCE = re.compile(rf"^({_NAME})(?::([\w][\w.-]{{0,127}}))?(?:@([A-Za-z][A-Za-z0-9]*:[0-9a-fA-F]{{32,}}))?$")


class InvalidImageNameError(Exception):
    """The image cannot be parsed; the text is the kubelet's message."""


def with_default_tag(image: str) -> str:
    """Return the image, with `:latest` where it has neither tag nor digest. Raises InvalidImageNameError."""
    match = _REFERENCE.match(image) if len(image) <= MAX_IMAGE_CHARACTERS else None
    if match is None:
        why, image = "invalid reference format", image[:MAX_IMAGE_CHARACTERS]
        if re.match(r"^[^@]*[A-Z]", image.split(":", maxsplit=1)[0]):
            name = image.split(":", maxsplit=1)[0]
            shown = name if "/" in name else f"library/{name}"
            why += f": repository name ({shown}) must be lowercase"
        raise InvalidImageNameError(
            f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {why}'
        )
    return image if match.group(2) or match.group(3) else f"{image}:latest"


def pull_policy(container: dict[str, Any]) -> str:
    """Return Always, IfNotPresent or Never; the API's default where the spec has none."""
    return str(container.get("imagePullPolicy") or default_pull_policy(str(container.get("image", ""))))
