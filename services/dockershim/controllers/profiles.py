"""Reads seccomp profiles, which Docker takes as text."""

from pathlib import Path

from services.dockershim.core.errors import CallError
from services.dockershim.core.security import MAX_PROFILE_BYTES
from shared.files.regular_file import read_regular_file


def read_profile(path: str) -> str:
    """Return the text of the profile at this path; "" for no path. Raises CallError."""
    if not path:
        return ""
    try:
        return read_regular_file(Path(path.removeprefix("localhost/")), MAX_PROFILE_BYTES).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CallError("InvalidArgument", f"the seccomp profile {path} cannot be read: {reason}") from None
