"""Adds the documents that a node needs to the wheel, and so to the Debian package, as a hook of hatchling
(pyproject.toml).

These are docs/ without docs/reference, half a megabyte that only developers of Bulkhead need."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NodeDocuments(BuildHookInterface):  # type: ignore[type-arg]
    """Adds each document to what is installed below `share/doc/bulkhead/docs`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the documents in `build_data`."""
        documents = Path(self.root, "docs")
        for path in sorted((*documents.glob("*.md"), *documents.glob("images/*"))):
            build_data["shared_data"][str(path)] = f"share/doc/bulkhead/docs/{path.relative_to(documents)}"
