"""Reads configuration documents: YAML or JSON text to plain data, and remembers where each key is.

Decides what is no document at all, and refuses what would cost more than any real configuration. Knows no field and no
default: `decoding` compares the data with the table of fields. Pure: text in, data and findings out.
"""

from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from typing import Any

import yaml

from shared.config.findings import Findings
from shared.config.spelling import closest as closest
from shared.config.spelling import why_unusable
from shared.yaml_reader.reader import Limits, Marks, Position, Reader, UnreadableError, parse, position_of, scalar_value
from shared.yaml_reader.scalars import key_text

# Real files have some hundred values in some thousand characters. A ConfigMap, from which operators write such files,
# holds at most 1 MiB; a configuration of more than a quarter of that is a mistake, and reading it would only cost.
MAX_FILE_BYTES = 256 * 1024
_LIMITS = Limits(depth=50, values=20_000, characters=400_000)
_MAX_DOCUMENTS = 20  # two of them are read
_MAX_KEY_CHARACTERS = 500  # of a dotted key; every key below repeats it
_HEADERS = "header"  # staticPodURLHeader, however it is misspelt: its values are secrets


@dataclass
class Document:
    """One YAML document as plain data; `places` maps dotted keys to `file:line:column`.

    `repeated` are keys that are given twice: dotted key, place of the later one, place of the first.
    """

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    place: str = ""
    repeated: list[tuple[str, str, str]] = field(default_factory=list)
    secret_lines: list[tuple[int, int]] = field(default_factory=list)  # first and last, not to be printed


def read_documents(text: str, file: str, findings: Findings) -> list[Document]:
    """Return all documents of the file, unchecked. What is not YAML, or not a mapping, becomes a finding."""
    if why := too_large(len(text)):
        findings.add("", why, "nothing that a kubelet reads is so long", place=file)
        return []
    documents: list[Document] = []
    events = parse(text)
    try:
        for event in events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            if len(documents) == _MAX_DOCUMENTS:
                findings.add("", f"holds more than {_MAX_DOCUMENTS} documents", "remove some", _place(file, event))
                break
            first = next(events)
            place = _place(file, first)
            reader = _Reader(file, findings, place)
            data = reader.read(chain([first], events))
            if data is not None and not isinstance(data, dict):
                findings.add("", "is not a mapping of keys to values", "see examples/", place=place)
                return []
            document = reader.document
            document.data = data or {}
            document.places = {key: _at(file, position) for key, position in _flat(reader.marks, "")}
            documents.append(document)
    except UnreadableError as error:
        why, remedy = error.why, "write it out plainly"
        if error.is_syntax:
            why, remedy = f"is not YAML: {why}", "correct the syntax there"
        findings.add("", why, remedy, place=_at(file, error.position) if error.position else file)
    return documents


def too_large(size: int) -> str:
    """Return why a file of this many bytes is not read; "" when it is."""
    return f"has more than {MAX_FILE_BYTES // 1024} KiB" if size > MAX_FILE_BYTES else ""


def _place(file: str, event: yaml.Event) -> str:
    return _at(file, position_of(event))


def _at(file: str, position: Position) -> str:
    return f"{file}:{position[0]}:{position[1]}"


def _flat(marks: Marks, prefix: str) -> list[tuple[str, Position]]:
    """Dotted keys with their positions, of all mappings below."""
    found = []
    for name, position in marks.keys.items():
        found.append((f"{prefix}.{name}" if prefix else name, position))
    for at, inner in marks.inner.items():
        key = f"{prefix}[{at}]" if isinstance(at, int) else f"{prefix}.{at}" if prefix else at
        found += _flat(inner, key)
    return found


class _Reader(Reader):
    """Turns the events of one document into data; a value or key that cannot be used becomes a finding."""

    keeps_marks = True

    def __init__(self, file: str, findings: Findings, place: str) -> None:
        super().__init__(_LIMITS)
        self._file, self._findings = file, findings
        self.document = Document(place=place)

    def scalar(self, event: yaml.ScalarEvent) -> Any:
        """Return the value of a scalar; None after a finding."""
        why = why_unusable(event.value)
        try:
            value = None if why else scalar_value(event)
        except ValueError as error:
            value, why = None, str(error)
        if isinstance(value, float) and not isfinite(value):
            value, why = None, f"is {event.value}, which is no number JSON knows"
        if why and not self.at_key:  # of a key, `name` reports it
            self._findings.add(self.key, why, "remove it", _place(self._file, event))
        return value

    def name(self, event: yaml.Event, value: Any) -> str | None:
        """Return the key as text; None after a finding."""
        why = why_unusable(event.value) if isinstance(event, yaml.ScalarEvent) else ""
        name = None if why else key_text(value)
        if not why and not name:
            why = "is not a string"
        if not why and name and len(self.key) + 1 + len(name) > _MAX_KEY_CHARACTERS:
            why = f"has {len(name)} characters"
        if why:
            self._findings.add(
                self.key[:_MAX_KEY_CHARACTERS], f"has a key that {why}", "remove it", _place(self._file, event)
            )
            return None
        return name

    def repeated(self, key: str, position: Position, first: Position | None) -> None:
        """Note the key and both places."""
        self.document.repeated.append((key, _at(self._file, position), _at(self._file, first) if first else ""))

    def pair_ended(self, key_event: yaml.Event, name: str | None, last: yaml.Event) -> None:
        """Note the lines of a secret."""
        if name is not None and _HEADERS in name.lower():
            end = last.end_mark
            assert end is not None
            last_line = end.line + (1 if end.column else 0)
            self.document.secret_lines.append((position_of(key_event)[0], last_line))
