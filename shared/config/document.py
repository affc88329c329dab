"""Reads configuration documents: YAML or JSON text to plain data, and remembers where each key stands.

Decides what is no document at all, and refuses what would cost more than any real configuration. Knows no field and no
default: `decoding` holds the data to the table of fields. Pure: text in, data and findings out.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import yaml

from shared.config.findings import Findings
from shared.config.scalars import key_text, plain_value, tagged_value
from shared.config.spelling import cannot_stand
from shared.config.spelling import closest as closest

# Real files have some hundred values in some thousand characters. A ConfigMap, from which operators write such files,
# holds at most 1 MiB; a configuration of more than a quarter of that is a mistake, and reading it would only cost.
LARGEST_FILE = 256 * 1024  # bytes
_MOST_VALUES = 20_000  # aliases expanded
_MOST_CHARACTERS = 400_000
_MOST_DOCUMENTS = 20  # two of them are read
_DEEPEST = 50
_LONGEST_KEY = 500  # characters of a dotted key; every key below repeats it
_HEADERS = "header"  # staticPodURLHeader, however it is misspelt: its values are secrets


@dataclass
class Document:
    """One YAML document as plain data; `places` maps dotted keys to `file:line:column`.

    `repeated` are keys that stand there twice: dotted key, place of the later one, place of the first.
    """

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    place: str = ""
    repeated: list[tuple[str, str, str]] = field(default_factory=list)
    secret_lines: list[tuple[int, int]] = field(default_factory=list)  # first and last, which nobody may print


class _UnreadableError(Exception):
    """The document cannot be read as data; the arguments are the event and why."""

    def __init__(self, event: yaml.Event, why: str, remedy: str = "write it out plainly") -> None:
        self.event, self.why, self.remedy = event, why, remedy
        super().__init__(why)


def read_documents(text: str, file: str, findings: Findings) -> list[Document]:
    """All documents of the file, unchecked. What is not YAML, or not a mapping, becomes a finding."""
    if why := too_large(len(text)):
        findings.add("", why, "nothing that a kubelet reads is so long", place=file)
        return []
    documents: list[Document] = []
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        loader.get_event()  # the stream's start
        while not isinstance(loader.peek_event(), yaml.StreamEndEvent):
            if len(documents) == _MOST_DOCUMENTS:
                raise _UnreadableError(
                    loader.peek_event(), f"holds more than {_MOST_DOCUMENTS} documents", "remove some"
                )
            document = _Reader(_events_of_document(loader), file, findings).document()
            if document is None:
                return []
            documents.append(document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        findings.add("", f"is not YAML: {error.problem or error.context}", "mend the syntax there", place=place)
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        findings.add("", f"is not YAML: {' '.join(str(error).split())}", "save it as plain UTF-8 text", place=file)
    except _UnreadableError as error:
        findings.add("", error.why, error.remedy, place=_place(file, error.event))
    return documents


def too_large(size: int) -> str:
    """Why a file of this many bytes is not read; "" when it is."""
    return f"has more than {LARGEST_FILE // 1024} KiB" if size > LARGEST_FILE else ""


def _place(file: str, event: yaml.Event) -> str:
    return f"{file}:{_line(event)}:{_mark(event.start_mark).column + 1}"


def _line(event: yaml.Event) -> int:
    return _mark(event.start_mark).line + 1


def _mark(mark: Any) -> yaml.Mark:
    """An event's mark, which the type hints believe may be missing."""
    assert mark is not None
    return mark  # type: ignore[no-any-return]


def _events_of_document(loader: Any) -> list[yaml.Event]:
    """The events of one document's node. Raises _UnreadableError when it is deeper or longer than any real one."""
    loader.get_event()  # the document's start
    events: list[yaml.Event] = []
    depth = characters = 0
    while True:
        event = loader.get_event()
        if isinstance(event, yaml.DocumentEndEvent):
            return events
        events.append(event)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent):
            characters += len(event.value)
        if depth > _DEEPEST:
            raise _UnreadableError(event, "is nested too deeply")
        if len(events) > 2 * _MOST_VALUES or characters > _MOST_CHARACTERS:
            raise _too_much(event)


def _too_much(event: yaml.Event) -> _UnreadableError:
    limits = f"{_MOST_VALUES} values or {_MOST_CHARACTERS} characters, aliases expanded"
    return _UnreadableError(event, f"holds more than {limits}")


class _Reader:
    """Turns the events of one document into data by JSON's rules; what cannot stand becomes a finding."""

    def __init__(self, events: list[yaml.Event], file: str, findings: Findings) -> None:
        self._events, self._file, self._findings = events, file, findings
        self._at = 0
        self._values = self._characters = 0  # spent, aliases expanded
        self._anchors: dict[str, int] = {}  # name -> index of its event
        self._targets: dict[int, int | None] = {}  # index of an alias -> of what it stands for
        self._replays = 0  # aliases being read now, one inside the other
        self._open: list[int] = []  # indices of the collections being read, outermost first
        self._document = Document()

    def document(self) -> Document | None:
        """The document; None when it is no mapping, which is then a finding."""
        first = self._events[0]
        self._document.place = _place(self._file, first)
        if isinstance(first, yaml.ScalarEvent) and self._scalar_value(first) is None:
            return self._document
        if not isinstance(first, yaml.MappingStartEvent):
            self._findings.add("", "is not a mapping of keys to values", "see examples/", place=self._document.place)
            return None
        self._document.data = self._value("", keeps_places=True)
        return self._document

    def _value(self, key: str, *, keeps_places: bool) -> Any:
        """The value that begins at the current event; afterwards the next one is current."""
        index, event = self._at, self._events[self._at]
        self._values += 1
        if self._values > _MOST_VALUES:
            raise _too_much(event)
        self._at += 1
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(self._targets.setdefault(index, self._anchors.get(event.anchor or "")), event, key)
        anchor: str | None = getattr(event, "anchor", None)
        if anchor and not self._replays:
            self._anchors[anchor] = index
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, key)
        self._open.append(index)
        if len(self._open) > _DEEPEST:
            raise _UnreadableError(event, "is nested too deeply, or contains itself")
        value: Any
        if isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(key, keeps_places=keeps_places)
        else:
            value = []
            while not isinstance(self._events[self._at], yaml.SequenceEndEvent):
                value.append(self._value(f"{key}[{len(value)}]", keeps_places=keeps_places))
        self._at += 1
        self._open.pop()
        return value

    def _aliased(self, start: int | None, event: yaml.AliasEvent, key: str) -> Any:
        """What the alias stands for, read once more: it has places of its own, and its cost is counted."""
        if start is None:
            raise _UnreadableError(event, f'is not YAML: unknown anchor "{event.anchor}"', "mend the syntax there")
        if start in self._open:
            raise _UnreadableError(event, "is nested too deeply, or contains itself")
        here, self._at = self._at, start
        self._replays += 1
        value = self._value(key, keeps_places=True)
        self._replays -= 1
        self._at = here
        return value

    def _mapping(self, key: str, *, keeps_places: bool) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(self._events[self._at], yaml.MappingEndEvent):
            event = self._events[self._at]
            place = _place(self._file, event)
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
                self._at += 1
                self._merge(merged, mapping, key)
                continue
            name = self._name(key)
            dotted = f"{key}.{name}" if key else name or ""
            kept = name is not None and self._name_can_stand(name, dotted, key, place)
            if kept and keeps_places:
                if name in mapping:
                    self._document.repeated.append((dotted, place, self._document.places.get(dotted, "")))
                self._document.places[dotted] = place
            first_line = _line(self._events[self._at])
            value = self._value(dotted if kept else key, keeps_places=keeps_places and kept)
            if name is not None and _HEADERS in name.lower():
                end = _mark(self._events[self._at - 1].end_mark)
                last_line = end.line + (1 if end.column else 0)
                self._document.secret_lines.append((min(first_line, _line(event)), last_line))
            if kept and name is not None:
                mapping[name] = value
        return {**merged, **mapping}

    def _merge(self, merged: dict[str, Any], own: dict[str, Any], key: str) -> None:
        """`<<`: keys of other mappings, which those written here win over."""
        event = self._events[self._at]
        prefix, places = f"{key}." if key else "", self._document.places
        written = {prefix + name: places[prefix + name] for name in own if prefix + name in places}
        self._values += len(own)
        given = self._value(key, keeps_places=True)
        places.update(written)
        for part in given if isinstance(given, list) else [given]:
            if not isinstance(part, dict):
                raise _UnreadableError(event, "is not YAML: << takes a mapping, or a list of them")
            for name, value in part.items():
                merged.setdefault(name, value)

    def _name(self, key: str) -> str | None:
        event = self._events[self._at]
        place = _place(self._file, event)
        if isinstance(event, yaml.ScalarEvent) and (why := cannot_stand(event.value)):
            self._at += 1
            self._findings.add(key, f"has a key that {why}", "remove it", place)
            return None
        value = self._value(key, keeps_places=False)
        name = key_text(value)
        if not name:
            self._findings.add(key, "has a key that is not a string", "remove it", place)
            return None
        return name

    def _name_can_stand(self, name: str, dotted: str, key: str, place: str) -> bool:
        why = cannot_stand(name) or (f"has {len(name)} characters" if len(dotted) > _LONGEST_KEY else "")
        if why:
            self._findings.add(key[:_LONGEST_KEY], f"has a key that {why}", "remove it", place)
        return not why

    def _scalar_value(self, event: yaml.ScalarEvent) -> Any:
        if event.tag and event.tag != "!":
            return tagged_value(event.tag, event.value)
        return plain_value(event.value) if event.implicit[0] and not event.tag else event.value

    def _scalar(self, event: yaml.ScalarEvent, key: str) -> Any:
        self._characters += len(event.value)
        if self._characters > _MOST_CHARACTERS:
            raise _too_much(event)
        place = _place(self._file, event)
        if why := cannot_stand(event.value):
            self._findings.add(key, why, "remove it", place)
            return None
        try:
            value = self._scalar_value(event)
        except ValueError as error:
            self._findings.add(key, str(error), "remove the tag", place)
            return None
        if isinstance(value, float) and not math.isfinite(value):
            self._findings.add(key, f"is {event.value}, which is no number JSON knows", "write a number", place)
            return None
        return value
