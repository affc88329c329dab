"""Reads the current context of a kubeconfig, and finds every error in its fields (config.md 6.2). Pure."""

import posixpath
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_PARTS = ("clusters", "contexts", "users", "current-context")
_CLUSTER_FILES = ("certificate-authority",)
_USER_FILES = ("client-certificate", "client-key", "tokenFile")
_REFUSED = {
    "username": ("basic authentication is not supported", "use a client certificate or a token"),
    "password": ("basic authentication is not supported", "use a client certificate or a token"),
    "auth-provider": ("auth-provider is not supported", "use exec with the provider's plugin"),
    "as": ("impersonation is not supported", "use the credentials of the node itself"),
}


class CurrentContext(Struct, frozen=True):
    """The current context. Problems are lines `what (remedy)`; the other fields are valid only where there are none."""

    problems: tuple[str, ...] = ()
    is_empty: bool = False  # it contains nothing that could name a cluster
    cluster: dict[str, Any] = field(default_factory=dict)  # keys without a value are left out
    user: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()  # absolute paths that cluster and user name


def read_current_context(document: Any, directory: str) -> CurrentContext:
    """Look at a decoded kubeconfig; relative paths in it are relative to `directory`, its own."""
    if document is None:
        return CurrentContext(is_empty=True)
    if not isinstance(document, dict):
        return CurrentContext(
            problems=("is not a kubeconfig: the top is no mapping (write clusters, users and contexts)",)
        )
    if not any(document.get(part) for part in _PARTS):
        return CurrentContext(is_empty=True)
    problems: list[str] = []
    context = _named(document, "contexts", "context", _current(document, problems), "current-context", problems)
    cluster = _named(document, "clusters", "cluster", context.get("cluster"), "the context's cluster", problems)
    user: dict[str, Any] = {}
    if context.get("user"):
        user = _named(document, "users", "user", context.get("user"), "the context's user", problems)
    if not problems:
        _check_cluster(cluster, problems)
        _check_user(user, problems)
    named = [cluster.get(key) for key in _CLUSTER_FILES] + [user.get(key) for key in _USER_FILES]
    files = tuple(posixpath.normpath(posixpath.join(directory, path)) for path in named if isinstance(path, str))
    return CurrentContext(problems=tuple(problems), cluster=cluster, user=user, files=files)


def _current(document: dict[str, Any], problems: list[str]) -> Any:
    name = document.get("current-context")
    if not name:
        problems.append("current-context is missing (name one of the contexts)")
    return name


def _named(document: dict[str, Any], part: str, key: str, name: Any, what: str, problems: list[str]) -> dict[str, Any]:
    """Return the inner mapping of the entry called `name`, without keys that have no value."""
    if problems:
        return {}
    entries = document.get(part) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        problems.append(f"{part} is not a list of entries with a name (write - name: …)")
        return {}
    found = [entry for entry in entries if entry.get("name") == name]
    if not name or not isinstance(name, str):
        problems.append(f"{what} is missing (name one of the {part})")
    elif not found:
        names = ", ".join(str(entry.get("name")) for entry in entries) or "none"
        problems.append(f'{what} is "{name}", which is not among the {part} (there are: {names})')
    elif len(found) > 1:
        problems.append(f'{part} has "{name}" twice (remove one of them)')
    elif not isinstance(found[0].get(key), dict):
        problems.append(f'{part} "{name}" has no {key} (write it below the name)')
    else:
        return {inner: value for inner, value in found[0][key].items() if value not in (None, "")}
    return {}


def _check_cluster(cluster: dict[str, Any], problems: list[str]) -> None:
    _check_text(cluster, ("server", "certificate-authority", "certificate-authority-data", "tls-server-name"), problems)
    _check_text(cluster, ("proxy-url",), problems)
    insecure = cluster.get("insecure-skip-tls-verify", False)
    if not isinstance(insecure, bool):
        problems.append("insecure-skip-tls-verify must be true or false (leave it out for false)")
    elif insecure and ("certificate-authority" in cluster or "certificate-authority-data" in cluster):
        problems.append("insecure-skip-tls-verify and a certificate-authority exclude each other (remove one)")
    for key in ("server", "proxy-url"):
        text = cluster.get(key)
        if key == "server" and text is None:
            problems.append("server is missing (write server: https://host:port)")
        elif key == "proxy-url" and isinstance(text, str) and text.startswith(("socks5://", "socks5h://")):
            remedy = "name the http:// URL of a proxy that speaks CONNECT"
            problems.append(f"proxy-url names a SOCKS proxy, which is not supported ({remedy})")
        elif isinstance(text, str) and (not _is_url(text) or (key == "server" and any(c in text for c in "@?#"))):
            problems.append(f"{key} is no URL of http or https with a host (write https://host:port)")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return text.startswith(("http://", "https://")) and bool(parts.hostname) and (port is None or port > 0)


def _check_user(user: dict[str, Any], problems: list[str]) -> None:
    _check_text(user, (*_USER_FILES, "token", "client-certificate-data", "client-key-data"), problems)
    for key, (what, remedy) in _REFUSED.items():
        line = f"{what} ({remedy})"
        if key in user and line not in problems:
            problems.append(line)
    has_certificate = "client-certificate" in user or "client-certificate-data" in user
    has_key = "client-key" in user or "client-key-data" in user
    if has_certificate != has_key:
        both = ("client-key", "client-certificate")
        missing, other = both if has_certificate else reversed(both)
        problems.append(f"{missing} is missing while {other} is given (give both)")
    if "exec" in user:
        _check_exec(user["exec"], problems)


def _check_exec(plugin: Any, problems: list[str]) -> None:
    if not isinstance(plugin, dict) or not isinstance(plugin.get("command"), str) or not plugin["command"]:
        problems.append("exec has no command (write command: with the plugin's name or path)")
        return
    version, mode = plugin.get("apiVersion"), plugin.get("interactiveMode")
    if version not in _EXEC_VERSIONS:
        problems.append(f"exec.apiVersion must be one of {', '.join(_EXEC_VERSIONS)} (see what the plugin supports)")
    if mode is None and version == _EXEC_VERSIONS[0]:
        problems.append("exec.interactiveMode is missing (write interactiveMode: Never)")
    elif mode == "Always":
        problems.append("exec.interactiveMode is Always, but there is no terminal (use Never)")
    elif mode not in (None, "Never", "IfAvailable"):
        problems.append("exec.interactiveMode must be Never or IfAvailable (names are case-sensitive)")
    arguments, variables = plugin.get("args") or [], plugin.get("env") or []
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        problems.append("exec.args must be a list of strings (quote numbers)")
    pairs = isinstance(variables, list) and all(isinstance(one, dict) for one in variables)
    if not pairs or not all(isinstance(one.get(key), str) for one in variables for key in ("name", "value")):
        problems.append("exec.env must be a list of name and value (quote numbers)")


def _check_text(given: dict[str, Any], keys: tuple[str, ...], problems: list[str]) -> None:
    for key in keys:
        if key in given and not isinstance(given[key], str):
            problems.append(f"{key} must be a string (quote it)")
