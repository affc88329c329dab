"""`bulkhead config show` prints the effective configuration, each value with its origin, without credentials."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from services.cli.config.masking import MASK, without_credentials
from shared.config.evaluation import evaluate
from shared.config.field_table import FIELDS
from shared.config.findings import ConfigurationRefusedError
from shared.config.flag_table import FLAGS
from shared.config.layers import Layers, Origin
from shared.config.nested import value_of
from shared.config.resolve import Resolved
from shared.model.schema import MapOf

Write = Callable[[str], None]
_HEADERS, _URL = "staticPodURLHeader", "staticPodURL"
_EVICTION_HARD, _NO_THRESHOLDS = "evictionHard", "not set, which in a file is an empty mapping"
_KIND = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
_TWO_ESCAPES = re.compile(r"\\ud[89ab]\w\w\\ud[c-f]\w\w")
_ORIGIN_COLUMN = 64  # the column in which origins begin
_NOT_SHOWN = ("help", "version")
_PLACES = {"root-dir": "root_dir", "cert-dir": "cert_dir", "run-dir": "run_dir", "log-dir": "log_dir"}


def show_configuration(arguments: Callable[[], list[str]], form: str, out: Write, err: Write) -> int:
    """Print the effective configuration as text, YAML or JSON. Return the exit code: 1 if it was refused, else 0."""
    try:
        resolved = evaluate(arguments())
    except ConfigurationRefusedError as error:
        for line in error.lines:
            err(line)
        return 1
    for remark in resolved.remarks:
        err(f"note: {remark}")
    document = masked(resolved.layers.data)
    if form == "json":
        out(json.dumps(_as_json(resolved, document), indent=2))
        return 0
    lines = _yaml_lines(resolved, document) if form == "yaml" else _text_lines(resolved, document)
    for text, origin in lines:
        out(f"{text:{_ORIGIN_COLUMN}}  # {origin}" if origin else text)
    return 0


def masked(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document, nested by key, with the values of URL headers and the credentials in the URL masked."""
    shown: dict[str, Any] = {}
    if headers := document.get(_HEADERS):
        shown[_HEADERS] = {name: [MASK] * len(values) for name, values in headers.items()}
    if url := document.get(_URL):
        shown[_URL] = without_credentials(url)
    return document | shown


def leaves(layers: Layers, document: dict[str, Any]) -> Iterator[tuple[list[str], Any, Origin]]:
    """Yield path, value and origin of every value that is set; for a map, those of each entry."""
    for one in FIELDS:
        value = value_of(document, one.key)
        if value is None:
            continue
        path, origin = one.key.split("."), layers.origins[one.key]
        if isinstance(one.schema, MapOf) and value:
            for name, item in value.items():
                yield [*path, name], item, layers.origins.get(f"{one.key}.{name}", origin)
        else:
            yield path, value, origin


def own_flags(resolved: Resolved) -> Iterator[tuple[str, Any, str]]:
    """Yield name, value and origin of the flags that have no key. Those without effect are shown only where they were
    given."""
    for name, flag in FLAGS.items():
        given = name in resolved.flags.own
        if flag.key or name in _NOT_SHOWN or not (flag.acts or given):
            continue
        value = resolved.flags.own.get(name, flag.default)
        if name in _PLACES:
            value = getattr(resolved.config, _PLACES[name])
        yield name, MASK if flag.secret else value, f"--{name}" if given else "default"


def _text_lines(resolved: Resolved, document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for path, value, origin in leaves(resolved.layers, document):
        yield f"{'.'.join(path)}: {_shown(value)}", str(origin)
    for name, value, where in own_flags(resolved):
        yield f"--{name}={_shown(value)}", where


def _yaml_lines(resolved: Resolved, document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines of a KubeletConfiguration with the same effect; origins and flags are comments."""
    for name, text in sorted(_KIND.items()):
        yield f"{name}: {text}", ""
    tree: dict[str, Any] = {}
    for path, value, origin in leaves(resolved.layers, document):
        inner = tree
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = (value, origin)
    if _EVICTION_HARD not in tree:  # in a file without this key the default thresholds apply
        tree[_EVICTION_HARD] = ({}, _NO_THRESHOLDS)
    yield from _yaml_tree(tree, "")
    for name, value, where in own_flags(resolved):
        yield f"# --{name}={_shown(value)}", where


def _yaml_tree(tree: dict[str, Any], indent: str) -> Iterator[tuple[str, str]]:
    for name, inner in tree.items():
        key = name if name.replace("-", "").replace(".", "").isalnum() and not name[0].isdigit() else json.dumps(name)
        if isinstance(inner, dict):
            yield f"{indent}{key}:", ""
            yield from _yaml_tree(inner, f"{indent}  ")
        else:
            value, origin = inner
            yield f"{indent}{key}: {_quoted(value)}", str(origin)


def _quoted(value: Any) -> str:
    """Return the value as JSON. Surrogate pairs become one character, as YAML needs it."""
    return _TWO_ESCAPES.sub(lambda two: str(json.loads(f'"{two[0]}"')), json.dumps(value))


def _as_json(resolved: Resolved, document: dict[str, Any]) -> dict[str, Any]:
    origins: dict[str, Any] = {}
    for path, _, origin in leaves(resolved.layers, document):
        origins["/".join(path)] = {"layer": origin.layer.value, "place": origin.place, "reason": origin.reason}
    flags = {name: {"value": value, "origin": where} for name, value, where in own_flags(resolved)}
    return {"kubeletconfig": {**_KIND, **document}, "origins": origins, "flags": flags}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)
