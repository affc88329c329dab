"""Decides which paths a payload may have, and which symlinks of a volume it no longer needs (volumes.md 9.1-9.2);
pure."""

from collections.abc import Iterable
from posixpath import normpath

from services.volume.core.files.payload import ContentError, Payload, Problem

MAX_PATH_CHARACTERS = 4096
MAX_NAME_CHARACTERS = 255


def clean_paths(payload: Payload) -> Payload:
    """Return the payload with normalized paths. Raises ContentError for a path that leads out of the volume or hides
    the volume's own symlinks."""
    for path in payload:
        if error := path_error(path):
            raise ContentError([Problem(f"invalid path: {error}")])
    return {normpath(path): file for path, file in payload.items()}


def path_error(path: str) -> str:
    """Return the reason why a file may not have this path; "" = it may."""
    if not path:
        return f'must not be empty: "{path}"'
    if path.startswith("/"):
        return f"must be relative path: {path}"
    if len(path) > MAX_PATH_CHARACTERS:
        return f"must be less than or equal to {MAX_PATH_CHARACTERS} characters"
    parts = path.split("/")
    if ".." in parts:
        return f"must not contain '..': {path}"
    if any(len(part) > MAX_NAME_CHARACTERS for part in parts):
        return f"filenames must be less than or equal to {MAX_NAME_CHARACTERS} characters"
    if parts[0].startswith(".."):
        return f"must not start with '..': {path}"
    if "\0" in path or normpath(path) == ".":
        return f"must name a file: {path!a}"
    return ""


def top_components(paths: Iterable[str]) -> set[str]:
    """Return the first component of each path, which is the name of a symlink at the top of the volume."""
    return {path.partition("/")[0] for path in paths}


def stale_links(links: Iterable[str], payload: Payload) -> list[str]:
    """Return the symlinks at the top of the volume that no file needs."""
    return sorted(set(links) - top_components(payload))
