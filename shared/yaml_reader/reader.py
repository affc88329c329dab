"""Builds plain JSON values from YAML parse events: the one reader, for manifests, configuration and kubeconfigs.

Not PyYAML's composer: that one recurses in C, so that a file of a hundred thousand brackets ends the process, and its
scalars differ from the kubelet's. This one never recurses, counts what aliases expand to, and knows where each key is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any, NamedTuple

import yaml
from msgspec import Struct

from shared.yaml_reader.scalars import key_text, plain_value, tagged_value

Position = tuple[int, int]  # line and column, from 1


class UnreadableError(Exception):
    """The text is not readable as YAML within the limits. `why` is one line; `position` is None where it is unknown."""

    def __init__(self, why: str, position: Position | None = None, *, is_syntax: bool = False) -> None:
        self.why, self.position, self.is_syntax = why, position, is_syntax
        super().__init__(why if position is None else f"line {position[0]}: {why}")


class Limits(Struct, frozen=True):
    """What one document may hold, what its aliases expand to included."""

    depth: int  # collections inside one another
    values: int
    characters: int  # of all scalars


@dataclass
class Marks:
    """Where the keys of a mapping, or of the mappings in a list, are."""

    keys: dict[str, Position] = field(default_factory=dict)
    inner: dict[str | int, "Marks"] = field(default_factory=dict)  # of collections: by key, or by index in a list


class _Built(NamedTuple):
    """A finished value with what it costs."""

    value: Any
    values: int = 1
    characters: int = 0
    depth: int = 0  # collections inside one another
    marks: Marks | None = None


# libyaml compares each %TAG directive of a text with those before it, without releasing the interpreter: 10 MiB of them
# take half an hour. No manifest needs one.
MAX_TAG_DIRECTIVES = 100
_TAG_DIRECTIVE = re.compile(rb"(?:^|[\n\r]|\xc2\x85|\xe2\x80[\xa8\xa9]|\xef\xbb\xbf)%TAG")
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_MERGE = "<<"
_MAX_SHOWN_CHARACTERS = 80  # of a name in an error


@dataclass(slots=True)
class _Open:
    """A collection whose end was not read yet."""

    start: yaml.Event
    anchor: str | None
    is_mapping: bool
    values: int = 1  # so far, this one included
    characters: int = 0
    depth: int = 0  # of what it holds
    items: list[Any] = field(default_factory=list)
    mapping: dict[str, Any] = field(default_factory=dict)
    merged: list[tuple[_Built, Position]] = field(default_factory=list)
    marks: Marks = field(default_factory=Marks)
    key_event: yaml.Event | None = None  # None = a key comes next
    name: str | None = None  # the key as text; None = its value is left out
    is_merge: bool = False


def parse(text: str | bytes) -> Iterator[yaml.Event]:
    """Yield the parse events. Raises UnreadableError where the text is not YAML."""
    try:
        if isinstance(text, str):
            text = text.encode()
        elif text.startswith(_UTF_16_MARKS):
            text = text.decode("utf-16").encode()
        if next(islice(_TAG_DIRECTIVE.finditer(text), MAX_TAG_DIRECTIVES, None), None) is not None:
            raise UnreadableError(f"holds more than {MAX_TAG_DIRECTIVES} %TAG directives")
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = (mark.line + 1, mark.column + 1) if mark is not None else None
        why = " ".join(str(error.problem or error.context).split())
        raise UnreadableError(why, position, is_syntax=True) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise UnreadableError(" ".join(str(error).split()), is_syntax=True) from error


def read_documents(text: str | bytes, limits: Limits) -> Iterator[Any]:
    """Yield the values of all documents in the text. Raises UnreadableError."""
    events = parse(text)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            yield Reader(limits).read(events)


def position_of(event: yaml.Event) -> Position:
    """Return where the event begins."""
    mark = event.start_mark
    assert mark is not None  # the type hints believe that it may be missing
    return mark.line + 1, mark.column + 1


class Reader:
    """Reads one document. A subclass may take another view of scalars and keys that cannot be used."""

    keeps_marks = False

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: list[_Open] = []  # outermost first
        self._anchors: dict[str, _Built | None] = {}  # None = its value is being read
        self._values = self._characters = 0
        self._result: _Built | None = None

    def read(self, events: Iterator[yaml.Event]) -> Any:
        """Return the value of the document whose start was the last event; reads to its end. Raises UnreadableError."""
        for event in events:
            if isinstance(event, yaml.DocumentEndEvent):
                break
            self._take(event)
        assert self._result is not None
        return self._result.value

    @property
    def marks(self) -> Marks:
        """Where the document's keys are; empty without `keeps_marks`."""
        return (self._result and self._result.marks) or Marks()

    @property
    def key(self) -> str:
        """The dotted key of the value that is read now, or of the nearest collection around it that is kept."""
        path = ""
        for collection in self._open:
            if not collection.is_mapping:
                path += f"[{len(collection.items)}]"
            elif collection.key_event is not None and not collection.is_merge:
                if collection.name is None:
                    return path
                path += f".{collection.name}" if path else collection.name
        return path

    @property
    def at_key(self) -> bool:
        """What comes next is a key of a mapping."""
        return bool(self._open) and self._open[-1].is_mapping and self._open[-1].key_event is None

    def scalar(self, event: yaml.ScalarEvent) -> Any:
        """Return the value of a scalar. Raises UnreadableError where JSON has no such value."""
        try:
            value = scalar_value(event)
        except ValueError as error:
            raise UnreadableError(f"{event.value[:40]!r} {error}", position_of(event)) from None
        if isinstance(value, float) and not isfinite(value):
            raise UnreadableError(f"{event.value} is no number that JSON has", position_of(event))
        return value

    def name(self, event: yaml.Event, value: Any) -> str | None:
        """Return the key as text; None leaves its value out. `value` of a collection is None."""
        name = key_text(value)
        if name is None:
            raise UnreadableError("a key must be a string, a number or a boolean", position_of(event))
        return name

    def repeated(self, key: str, position: Position, first: Position | None) -> None:
        """Take in that a key stands twice in one mapping, whose later value holds. `first` is None without
        `keeps_marks`."""

    def pair_ended(self, key_event: yaml.Event, name: str | None, last: yaml.Event) -> None:
        """Take in that the value of a key was read up to and with the event `last`."""

    def _take(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._count(event, 1, len(event.value))
                if self._is_merge(event):
                    self._open[-1].key_event, self._open[-1].is_merge = event, True
                else:
                    built = _Built(self.scalar(event), characters=len(event.value))
                    self._finish(built, event, event, event.anchor)
            case yaml.AliasEvent():
                self._finish(self._aliased(event), event, event, None)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                if len(self._open) >= self._limits.depth:
                    raise self._too_deep(event)
                self._count(event, 1, 0)
                if event.anchor is not None:
                    self._anchors[event.anchor] = None
                self._open.append(_Open(event, event.anchor, isinstance(event, yaml.MappingStartEvent)))
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                collection = self._open.pop()
                value = self._merge(collection) if collection.is_mapping else collection.items
                marks = collection.marks if self.keeps_marks else None
                built = _Built(value, collection.values, collection.characters, collection.depth + 1, marks)
                self._finish(built, collection.start, event, collection.anchor)

    def _is_merge(self, event: yaml.ScalarEvent) -> bool:
        return self.at_key and event.value == _MERGE and bool(event.implicit[0])

    def _count(self, event: yaml.Event, values: int, characters: int) -> None:
        self._values += values
        self._characters += characters
        limits = self._limits
        if self._values > limits.values or self._characters > limits.characters:
            most = f"{limits.values} values or {limits.characters} characters"
            raise UnreadableError(f"holds more than {most}, aliases expanded", position_of(event))

    def _too_deep(self, event: yaml.Event) -> UnreadableError:
        return UnreadableError(f"is nested deeper than {self._limits.depth} levels", position_of(event))

    def _aliased(self, event: yaml.AliasEvent) -> _Built:
        name = event.anchor or ""
        if name not in self._anchors:
            raise UnreadableError(
                f'unknown anchor "{name[:_MAX_SHOWN_CHARACTERS]}"', position_of(event), is_syntax=True
            )
        built = self._anchors[name]
        if built is None:
            raise UnreadableError(f'contains itself by the alias "{name[:_MAX_SHOWN_CHARACTERS]}"', position_of(event))
        self._count(event, built.values, built.characters)
        if len(self._open) + built.depth > self._limits.depth:
            raise self._too_deep(event)
        return built

    def _finish(self, built: _Built, first: yaml.Event, last: yaml.Event, anchor: str | None) -> None:
        """Put a finished value, read from the events `first` to `last`, into the collection around it."""
        if anchor is not None and (built.depth == 0 or self._anchors.get(anchor, built) is None):
            self._anchors[anchor] = built
        if not self._open:
            self._result = built
            return
        around = self._open[-1]
        around.values += built.values
        around.characters += built.characters
        if built.depth > around.depth:
            around.depth = built.depth
        if not around.is_mapping:
            if built.marks is not None:
                around.marks.inner[len(around.items)] = built.marks
            around.items.append(built.value)
        elif around.key_event is None:
            around.name = self.name(first, None if built.depth else built.value)
            around.key_event = first
        elif around.is_merge:
            around.merged.append((built, position_of(around.key_event)))
            around.key_event, around.is_merge = None, False
        else:
            self._pair(around, around.key_event, built, last)

    def _pair(self, around: _Open, key_event: yaml.Event, built: _Built, last: yaml.Event) -> None:
        name = around.name
        if name is not None:
            if name in around.mapping:
                self.repeated(self.key, position_of(key_event), around.marks.keys.get(name))
            around.mapping[name] = built.value
            if self.keeps_marks:
                around.marks.keys[name] = position_of(key_event)
                around.marks.inner.pop(name, None)
                if built.marks is not None:
                    around.marks.inner[name] = built.marks
        self.pair_ended(key_event, name, last)
        around.key_event = around.name = None

    def _merge(self, collection: _Open) -> dict[str, Any]:
        """Return the mapping with those that it merges: of several the first holds, and its own keys before all."""
        merged: dict[str, Any] = {}
        own = collection.marks
        for built, position in collection.merged:
            is_list = isinstance(built.value, list)
            for index, part in enumerate(built.value if is_list else [built.value]):
                if not isinstance(part, dict):
                    raise UnreadableError("<< takes a mapping, or a list of them", position, is_syntax=True)
                marks = built.marks and (built.marks.inner.get(index) if is_list else built.marks)
                for name, value in part.items():
                    merged.setdefault(name, value)
                    if marks is not None and name in marks.keys and name not in own.keys:
                        own.keys[name] = marks.keys[name]
                        if name in marks.inner:
                            own.inner[name] = marks.inner[name]
        return {**merged, **collection.mapping}


def scalar_value(event: yaml.ScalarEvent) -> Any:
    """Return the value of a scalar; inf and nan are floats. Raises ValueError where its tag does not fit."""
    if event.tag and event.tag != "!":
        return tagged_value(event.tag, event.value)
    return plain_value(event.value) if event.implicit[0] and not event.tag else event.value
