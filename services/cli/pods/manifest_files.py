"""Reads the files that a command is given: YAML or JSON, several documents, items of lists, standard input. Limits
their sizes."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shared.errors import OperatorError
from shared.yaml_reader.reader import Limits, UnreadableError, read_documents

MAX_FILE_BYTES = 64 << 20  # of one file

Document = dict[str, Any]


def read_files(files: Sequence[str], most_bytes: int = MAX_FILE_BYTES) -> Iterator[Document]:
    """Yield the documents of all files ("-" = standard input), items of lists included. `most_bytes`: the limit of one
    file, and of its content with aliases expanded. Raises OperatorError."""
    return (document for file in files for document in read_manifest_file(file, most_bytes))


def read_manifest_file(file: str, most_bytes: int = MAX_FILE_BYTES) -> Iterator[Document]:
    """Yield the documents of one file, as `read_files` does. Raises OperatorError."""
    try:
        content = _read(file, most_bytes)
        limits = Limits(depth=100, values=most_bytes, characters=most_bytes)
        found = [one for one in read_documents(content, limits) if one is not None]
    except OSError as error:
        raise OperatorError(f"cannot be read: {error.strerror}", where=file, remedy="name another file") from error
    except UnreadableError as error:
        raise OperatorError(f"not YAML: {error}", where=file, remedy="correct it") from error
    if not found:
        raise OperatorError("holds no manifest", where=file, remedy="name another file")
    for document in found:
        is_list = isinstance(document, dict) and str(document.get("kind")).endswith("List")
        items = document.get("items") or [] if is_list else [document]
        for item in items if isinstance(items, list) else [items]:
            if not isinstance(item, dict):
                raise OperatorError("holds a document that is no object", where=file, remedy="correct it")
            yield item


def _read(file: str, most_bytes: int) -> bytes:
    if file == "-":
        content = sys.stdin.buffer.read(most_bytes + 1)
    else:
        with Path(file).open("rb") as opened:
            content = opened.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OperatorError(f"larger than {most_bytes >> 20} MiB", where=file, remedy="divide it")
    return content
