"""Reads configuration documents: YAML or JSON text to plain data, checked against a table of fields.

Decides what is unknown, of the wrong type, or given twice, and remembers where each key stands. Knows no defaults and
no meaning. Pure: text in, data and findings out. An unknown key is refused here, where the Go kubelet only logs it.
"""

import difflib
from dataclasses import dataclass, field
from typing import Any

import yaml

from shared.config.durations import parse_duration
from shared.config.fields import Kind, ListOf, MapOf, Schema
from shared.config.findings import Findings

_INTEGER_LIMITS = {Kind.INT32: (-(2**31), 2**31 - 1), Kind.INT64: (-(2**63), 2**63 - 1), Kind.UINT32: (0, 2**32 - 1)}
_DEEPEST = 50
_LARGEST = 200_000  # values and their characters, after aliases are expanded; real files have some thousand
_LONGEST_KEY = 1000  # characters; every key below repeats it in its dotted name


@dataclass
class Document:
    """One YAML document as plain data; `places` maps dotted keys to `file:line:column`."""

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    place: str = ""


class _TooLargeError(Exception):
    """The node cannot be read as data; `str()` says why."""

    def __init__(self, node: yaml.Node, why: str) -> None:
        self.node = node
        super().__init__(why)


class _Measure:
    """Refuses a document that is out of bounds before anything expands its aliases or merge keys."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}  # expanded size and height, by the node's id

    def of(self, node: yaml.Node, depth: int = 0) -> tuple[int, int]:
        """Expanded size and height; visits each node once. Raises _TooLargeError, also for what contains itself."""
        if depth > _DEEPEST:
            raise _TooLargeError(node, "is nested too deeply, or contains itself")
        if isinstance(node, yaml.ScalarNode):
            return 1 + len(node.value), 0
        if id(node) in self._known:
            return self._known[id(node)]
        size, height = 1, 0
        inner = (part for pair in node.value for part in pair) if isinstance(node, yaml.MappingNode) else node.value
        for part in inner:
            part_size, part_height = self.of(part, depth + 1)
            size, height = size + part_size, max(height, part_height + 1)
            if size > _LARGEST:
                raise _TooLargeError(node, f"holds more than {_LARGEST} values and characters, aliases expanded")
        if depth + height > _DEEPEST:
            raise _TooLargeError(node, "is nested too deeply, or contains itself")
        self._known[id(node)] = size, height
        return size, height


class _Reader:
    """Turns nodes into data by JSON's rules: timestamps and sexagesimal numbers are strings."""

    def __init__(self, file: str, loader: yaml.SafeLoader, findings: Findings) -> None:
        self._file, self._loader, self._findings = file, loader, findings

    def place(self, node: yaml.Node) -> str:
        return f"{self._file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def read(self, node: yaml.Node, key: str, places: dict[str, str]) -> Any:
        """Data of a node that has been measured."""
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, key, places)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, f"{key}[{i}]", places) for i, item in enumerate(node.value)]
        return self._scalar(node, key)

    def _mapping(self, node: yaml.MappingNode, key: str, places: dict[str, str]) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        seen: dict[str, str] = {}
        own = [id(name) for name, _ in node.value]
        self._loader.flatten_mapping(node)
        for name_node, value_node in node.value:
            name = str(name_node.value) if isinstance(name_node, yaml.ScalarNode) else ""
            place = self.place(name_node)
            if not name:
                self._findings.add(key, "has a key that is not a string", place=place)
                continue
            if len(name) > _LONGEST_KEY or cannot_stand(name):
                why = cannot_stand(name) or f"has {len(name)} characters"
                self._findings.add(key, f"has a key that {why}", "remove it", place)
                continue
            dotted = f"{key}.{name}" if key else name
            if name in seen and id(name_node) in own:
                self._findings.add(dotted, f"is given twice, first at {seen[name]}", "remove one of them", place)
            seen[name] = place
            places[dotted] = place
            mapping[name] = self.read(value_node, dotted, places)
        return mapping

    def _scalar(self, node: yaml.Node, key: str) -> Any:
        text = str(node.value)
        if why := cannot_stand(text):
            self._findings.add(key, why, "remove it", self.place(node))
            return None
        if node.tag.endswith(":timestamp") or (node.tag.endswith((":int", ":float")) and ":" in text):
            return text
        try:
            return self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            self._findings.add(key, f"cannot be read: {_one_line(error)}", place=self.place(node))
            return None


def read_documents(text: str, file: str, findings: Findings) -> list[Document]:
    """All documents of the file, unchecked. What is not YAML, or not a mapping, becomes a finding."""
    if not text.strip():
        findings.add("", "is empty", "write a KubeletConfiguration into it, or leave out --config", place=file)
        return []
    documents: list[Document] = []
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            node = loader.get_node()
            reader, document = _Reader(file, loader, findings), Document()
            if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
                continue
            document.place = reader.place(node)
            if not isinstance(node, yaml.MappingNode):
                findings.add("", "is not a mapping of keys to values", "see examples/", place=document.place)
                continue
            _Measure().of(node)
            document.data = reader.read(node, "", document.places)
            documents.append(document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        findings.add("", f"is not YAML: {error.problem or error.context}", "mend the syntax there", place=place)
    except yaml.YAMLError as error:
        findings.add("", f"is not YAML: {_one_line(error)}", "save it as plain UTF-8 text", place=file)
    except _TooLargeError as error:
        mark = error.node.start_mark
        findings.add("", str(error), "write it out plainly", place=f"{file}:{mark.line + 1}:{mark.column + 1}")
    except RecursionError:  # of the composer
        place = f"{file}:{loader.line + 1}" if loader else file
        findings.add("", "is nested too deeply", "write it out plainly", place=place)
    return documents


def cannot_stand(text: str) -> str:
    """Why no path, name or message can carry this text; "" when it can."""
    if "\0" in text:
        return "holds a NUL byte"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds what is no UTF-8"
    return ""


def check_fields(data: dict[str, Any], schema: dict[str, Schema], findings: Findings, key: str = "") -> None:
    """Note every unknown key and every value of the wrong type; null counts as not given."""
    for name, value in data.items():
        dotted = f"{key}.{name}" if key else name
        if name not in schema:
            close = closest(name, list(schema))
            remedy = f'did you mean "{close}"?' if close else "remove it"
            findings.add(dotted, "unknown key", remedy)
        elif value is not None:
            _check(value, schema[name], dotted, findings)


def _check(value: Any, schema: Schema, key: str, findings: Findings) -> None:
    if isinstance(schema, dict):
        if isinstance(value, dict):
            check_fields(value, schema, findings, key)
        else:
            findings.add(key, f"is {_shown(value, key)}, must be a mapping", f"its keys are {', '.join(schema)}")
    elif isinstance(schema, MapOf):
        if not isinstance(value, dict):
            findings.add(key, f"is {_shown(value, key)}, must be a mapping", "write `name: value` lines")
            return
        for name, item in value.items():
            if item is not None:
                _check(item, schema.item, f"{key}.{name}", findings)
    elif isinstance(schema, ListOf):
        if not isinstance(value, list):
            findings.add(key, f"is {_shown(value, key)}, must be a list", "write `- value` lines, or [value, value]")
            return
        for index, item in enumerate(value):
            _check(item, schema.item, f"{key}[{index}]", findings)
    else:
        _check_scalar(value, schema, key, findings)


def _check_scalar(value: Any, kind: Kind, key: str, findings: Findings) -> None:
    number = isinstance(value, int) and not isinstance(value, bool)
    if kind is Kind.BOOL:
        fits, remedy = isinstance(value, bool), "write true or false without quotes"
    elif kind in _INTEGER_LIMITS:
        low, high = _INTEGER_LIMITS[kind]
        fits, remedy = number and low <= value <= high, "write a number without quotes"
    elif kind is Kind.FLOAT64:
        fits, remedy = number or isinstance(value, float), "write a number without quotes"
    elif kind is Kind.STRING:
        fits, remedy = isinstance(value, str), "put it in quotes"
    elif kind is Kind.QUANTITY:
        fits, remedy = isinstance(value, str) or number, "put it in quotes"
    else:
        remedy = 'write numbers with units ns, us, ms, s, m, h, as in "20s"'
        fits = (kind is Kind.FLUSH and number) or (isinstance(value, str) and _is_duration(value))
    if not fits:
        findings.add(key, f"is {_shown(value, key)}, must be {kind}", remedy)


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except ValueError:
        return False
    return True


def closest(name: str, known: list[str]) -> str:
    """The known name most like this one, or "" when none is close."""
    folded = {candidate.lower(): candidate for candidate in known}
    if name.lower() in folded:
        return folded[name.lower()]
    matches = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.75)
    return folded[matches[0]] if matches else ""


def _shown(value: Any, key: str) -> str:
    if key.startswith("staticPodURLHeader."):
        return "<masked>"  # may carry credentials
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else ("empty" if value is None else str(value))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
