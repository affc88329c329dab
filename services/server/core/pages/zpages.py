"""The pages `/statusz` and `/flagz`: as text, or structured where the client asks for it (server.md 15.4); pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from shared.model.objects import Object

GROUP, VERSION, OLD_VERSION = "config.k8s.io", "v1beta1", "v1alpha1"
DELIMITERS = (":", ": ", "=", " ")  # one of them is chosen for each answer, so that no program reads the text
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)
_STRUCTURED = frozenset({"application/json", "application/yaml"})
_TEXT = frozenset({"text/plain", "text/*", "*/*"})


class Page(StrEnum):
    """The kinds of the structured pages."""

    STATUSZ = "Statusz"
    FLAGZ = "Flagz"


class Representation(Struct, frozen=True):
    """How a page is answered: as text, or structured in this version of the API."""

    content_type: str
    version: str = ""  # "" = text


TEXT = Representation("text/plain; charset=utf-8")


def representation(accept: str, page: Page) -> Representation | None:
    """Return the representation that the Accept header prefers; None = there is none that it accepts."""
    if not accept.strip():
        return TEXT
    ranges = [_media_range(part) for part in accept.split(",")]
    for kind, parameters, quality in sorted(ranges, key=lambda each: -each[2]):
        if quality <= 0:
            continue
        if kind in _TEXT:
            return TEXT
        wanted = parameters.get("g"), parameters.get("as")
        if kind in _STRUCTURED and wanted == (GROUP, page) and parameters.get("v") in (VERSION, OLD_VERSION):
            return Representation(kind, parameters["v"])
    return None


def not_acceptable(page: Page) -> str:
    """Return the body of the 406."""
    structured = (f"{kind};v={VERSION};g={GROUP};as={page}" for kind in sorted(_STRUCTURED))
    return f"only the following media types are accepted: text/plain, {', '.join(structured)}\n"


def statusz_text(started: datetime, now: datetime, runtime: str, version: str, paths: Iterable[str], mark: str) -> str:
    """Return the text of /statusz. `mark`: one of DELIMITERS; `runtime`: what executes the agent."""
    seconds = int((now - started).total_seconds())
    up = f"{seconds // 3600} hr {seconds // 60 % 60:02d} min {seconds % 60:02d} sec"
    rows = {
        "Started": started.strftime("%a %b %e %H:%M:%S %Z %Y"),
        "Up": up,
        "Go version": runtime,
        "Binary version": version,
        "Paths": " ".join(sorted(paths)),
    }
    return _text("statusz", rows, mark)


def statusz_object(
    started: datetime, now: datetime, runtime: str, version: str, paths: Iterable[str], api_version: str
) -> Object:
    """Return the structured Statusz."""
    return {
        **_head(Page.STATUSZ, api_version),
        "startTime": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "uptimeSeconds": int((now - started).total_seconds()),
        "goVersion": runtime,
        "binaryVersion": version,
        "paths": sorted(paths),
    }


def flagz_text(flags: Mapping[str, str], mark: str) -> str:
    """Return the text of /flagz."""
    return _text("flagz", dict(sorted(flags.items())), mark)


def flagz_object(flags: Mapping[str, str], api_version: str) -> Object:
    """Return the structured Flagz."""
    return {**_head(Page.FLAGZ, api_version), "flags": dict(sorted(flags.items()))}


def _head(page: Page, api_version: str) -> Object:
    return {"kind": str(page), "apiVersion": f"{GROUP}/{api_version}", "metadata": {"name": "kubelet"}}


def _text(name: str, rows: Mapping[str, str], mark: str) -> str:
    lines = "".join(f"{key}{mark}{value}\n" for key, value in rows.items())
    return f"\nkubelet {name}\n{_WARNING}\n\n{lines}"


def _media_range(part: str) -> tuple[str, dict[str, str], float]:
    kind, *parameters = (piece.strip() for piece in part.split(";"))
    named = dict(parameter.partition("=")[::2] for parameter in parameters)
    try:
        quality = float(named.get("q", "1"))
    except ValueError:
        quality = 0.0
    return kind.lower(), named, quality
