"""A run of a recorded pod on our agent, put into the words of the recording: which pod, machine and moment it was is
taken out on both sides, and nothing else.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.model.objects import Object

Call = tuple[str, Any]  # method and request, "<method> failed" where the runtime refused


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a pod ran. `words`: text of this place -> text that is the same in every place, longest first; `patterns`:
    what else the two sides are not compared in."""

    uid: str
    words: tuple[tuple[str, str], ...]
    patterns: tuple[tuple[re.Pattern[str], str], ...] = ()

    def plain(self, text: str) -> str:
        """Return the text as it would be in any place."""
        for ours, anywhere in ((self.uid, "UID"), *self.words):
            if ours in text:
                text = re.sub(rf"(?<![\d.]){re.escape(ours)}(?!\d)", anywhere, text)
        for pattern, anywhere in (*_RANDOM, *self.patterns):
            text = pattern.sub(anywhere, text)
        return text.removesuffix(": unknown")  # a word some versions of containerd add


_RANDOM = (
    (re.compile(r"kube-api-access-[a-z0-9]{5}"), "kube-api-access-XXXXX"),
    (re.compile(r"(/containers/[^/]+)/[0-9a-f]{8}$"), r"\1/XXXXXXXX"),
    (re.compile(r"\b(containerd://|docker://)?[0-9a-f]{64}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
)


def plain_value(value: Any, place: Place) -> Any:
    """Return a message or object in words that are the same in every place."""
    if isinstance(value, dict):
        return {place.plain(str(key)): plain_value(item, place) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_value(item, place) for item in value]
    return place.plain(value) if isinstance(value, str) else value


def plain_status(status: Object, place: Place) -> Any:
    """Return a pod's status with its conditions by type, because their order is the API server's."""
    plain = plain_value(status, place)
    return plain | {"conditions": {c["type"]: c for c in plain.get("conditions") or ()}}


def plain_event(event: Object, place: Place) -> tuple[str, ...]:
    """Return type, reason, message and field path; how often it was counted is chance."""
    return (
        event["type"],
        event["reason"],
        place.plain(str(event["message"])),
        event["involvedObject"].get("fieldPath", ""),
    )


class Calls:
    """The changing calls about one pod, with ids by what they are of: `c/0` is the first container c."""

    def __init__(self, place: Place, *, base64_values: bool) -> None:
        self._place, self._base64 = place, base64_values
        self._names: dict[str, str] = {}

    def in_plain_form(self, calls: Iterable[Mapping[str, Any]]) -> list[Call]:
        """`calls` have method, code, request and response, as in the recordings. Stops that run side by side are put in
        the order of their containers."""
        plain = [self._plain(call) for call in calls]
        return in_groups(plain, lambda call: call[0] in ("StopContainer", "RemoveContainer"))

    def _plain(self, call: Mapping[str, Any]) -> Call:
        request, response = dict(call["request"]), call.get("response") or {}
        if call["method"] == "RunPodSandbox" and response:
            attempt = request["config"]["metadata"].get("attempt", 0)
            self._names[response["pod_sandbox_id"]] = f"sandbox/{attempt}"
        if call["method"] == "CreateContainer" and response:
            metadata = request["config"]["metadata"]
            self._names[response["container_id"]] = f"{metadata['name']}/{metadata.get('attempt', 0)}"
        for field in ("container_id", "pod_sandbox_id"):
            if field in request:
                request[field] = self._names.get(request[field], "unknown")
        refused = "" if call["code"] == "OK" else " failed"
        return call["method"] + refused, self._config(plain_value(request, self._place))

    def _config(self, request: Any) -> Any:
        for name in ("config", "sandbox_config"):
            config = request.get(name)
            if config and "envs" in config:
                envs = [(e["key"], self._value(e.get("value", ""))) for e in config["envs"]]
                config["envs"] = sorted(envs)
            if config and "dns_config" in config:
                config["dns_config"]["options"] = sorted(config["dns_config"].get("options", ()))
        return request

    def _value(self, text: str) -> str:
        return self._place.plain(base64.b64decode(text).decode() if self._base64 else text)


def in_groups(calls: list[Call], belongs: Callable[[Call], bool]) -> list[Call]:
    """Return neighbours of one method for which their order is chance, in the order of their requests."""
    ordered: list[Call] = []
    group: list[Call] = []
    for call in [*calls, ("", None)]:
        if group and (call[0] != group[0][0] or not belongs(call)):
            ordered += sorted(group, key=lambda c: json.dumps(c[1], sort_keys=True))
            group = []
        if belongs(call):
            group.append(call)
        elif call[0]:
            ordered.append(call)
    return ordered
