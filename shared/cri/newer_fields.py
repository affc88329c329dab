"""Reads and writes fields of CRI v1 that Kubernetes 1.37 has and the generated messages lack: a protobuf message keeps,
and sends, a field that it does not know.
"""

from collections.abc import Iterable
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

MOUNT_OPTIONS = "mount_options"
_FEATURE_MOUNT_OPTIONS = 3  # RuntimeFeatures.mount_options, a bool
_TAG_MOUNT_OPTIONS = 11 << 3 | 2  # Mount.mount_options, repeated string
_MAX_OPTION_BYTES = 127  # a length of one byte


def takes_mount_options(features: Any) -> bool:
    """Return whether RuntimeFeatures says that the runtime heeds the options of a container's mount."""
    fields = UnknownFieldSet(features)
    found = (fields[index] for index in range(len(fields)))
    return any(field.field_number == _FEATURE_MOUNT_OPTIONS and bool(field.data) for field in found)


def add_mount_options(mount: Any, options: Iterable[str]) -> None:
    """Add the options to a Mount message. Raises ValueError for a longer one than the encoding here takes."""
    for option in options:
        text = option.encode()
        if len(text) > _MAX_OPTION_BYTES:
            raise ValueError(f"the mount option has {len(text)} bytes, at most {_MAX_OPTION_BYTES} are sent")
        mount.MergeFromString(bytes((_TAG_MOUNT_OPTIONS, len(text))) + text)
