"""Checks the configuration of image credential providers, a file or a directory (config.md 2.6).

Reads those files and checks whether the plugins exist; runs none. Reports what is wrong, but never the values of a
plugin's arguments and environment, which may be secrets; else what they name is returned.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.config.decoding import decode
from shared.config.document import MAX_FILE_BYTES, Document, read_documents, too_large
from shared.config.durations import parse_nanoseconds
from shared.config.effective import CredentialProvider
from shared.config.findings import ERROR, Findings
from shared.config.rules_urls import scheme_of
from shared.model.schema import ListOf, Scalar, Schema
from shared.podspec.names import qualified_name

_CONFIG, _BIN_DIR = "--image-credential-provider-config", "--image-credential-provider-bin-dir"
_GROUP, _KIND = "kubelet.config.k8s.io", "CredentialProviderConfig"
_API = "credentialprovider.kubelet.k8s.io"
_UNKNOWN = "unknown key"  # the message of `decode`
_VERSIONS = ("v1", "v1beta1", "v1alpha1")
_ENDINGS = (".json", ".yaml", ".yml")
_GATE = "KubeletServiceAccountTokenForCredentialProviders"
_CACHE_TYPES = ("ServiceAccount", "Token")
_REQUIRED, _OPTIONAL = "requiredServiceAccountAnnotationKeys", "optionalServiceAccountAnnotationKeys"
_STRINGS = ListOf(Scalar.STRING)
_PROVIDER: dict[str, Schema] = {
    "name": Scalar.STRING, "matchImages": _STRINGS, "defaultCacheDuration": Scalar.DURATION,
    "apiVersion": Scalar.STRING,
    "args": _STRINGS, "env": ListOf({"name": Scalar.STRING, "value": Scalar.STRING}),
}  # fmt: skip
_TOKEN: dict[str, Schema] = {
    "serviceAccountTokenAudience": Scalar.STRING, "cacheType": Scalar.STRING, "requireServiceAccount": Scalar.BOOLEAN,
    _REQUIRED: _STRINGS, _OPTIONAL: _STRINGS,
}  # fmt: skip


def check_credential_providers(
    config: str, bin_dir: str, gates: Mapping[str, bool], findings: Findings
) -> tuple[CredentialProvider, ...]:
    """Return the plugins that the two flags name, in order, none where something is wrong with them: all of that is
    noted. "" is a flag that was not given.
    """
    if not config and not bin_dir:
        return ()
    before = len(findings.found)
    for flag, value, other in ((_CONFIG, config, _BIN_DIR), (_BIN_DIR, bin_dir, _CONFIG)):
        if not value:
            findings.add("", f"is not set, but {other} is", "give both flags, or none", flag)
    names: dict[str, str] = {}
    providers: list[dict[str, Any]] = []
    for file in _files(Path(config), findings) if config else ():
        text = _text(file, findings)
        if text is None:
            continue
        own = Findings(default_place=str(file))
        for place, provider in _check_file(text, str(file), gates, own):
            name = provider["name"]
            if name in names:
                own.add("", f'a second provider "{name}", the first is at {names[name]}', "rename one of them", place)
            names.setdefault(name, place)
            providers.append(provider)
        findings.include(own)
    if bin_dir:
        _check_plugins(Path(bin_dir), names, findings)
    return tuple(_provider(one) for one in providers) if len(findings.found) == before else ()


def _provider(given: dict[str, Any]) -> CredentialProvider:
    """Return what is fine, in the agent's own words."""
    token = given.get("tokenAttributes") or {}
    return CredentialProvider(
        name=given["name"],
        match_images=tuple(given["matchImages"]),
        default_cache_seconds=parse_nanoseconds(given["defaultCacheDuration"]) / 1e9,
        api_version=given["apiVersion"],
        args=tuple(arg or "" for arg in given.get("args") or ()),
        env=tuple((one.get("name") or "", one.get("value") or "") for one in given.get("env") or ()),
        token_audience=token.get("serviceAccountTokenAudience") or "",
        token_cache_type=token.get("cacheType") or "",
        requires_account=bool(token.get("requireServiceAccount")),
        required_annotations=tuple(token.get(_REQUIRED) or ()),
        optional_annotations=tuple(token.get(_OPTIONAL) or ()),
    )


def _files(path: Path, findings: Findings) -> list[Path]:
    """Return the file, or those of the directory in order."""
    try:
        if not path.is_dir():
            return [path]
        files = sorted(entry for entry in path.iterdir() if entry.suffix in _ENDINGS and not entry.is_dir())
    except OSError as error:
        findings.add("", f"{path} cannot be read: {error.strerror}", "give a file or a directory", _CONFIG)
        return []
    if not files:
        findings.add("", f"{path} holds no file ending in {', '.join(_ENDINGS)}", "put one there", _CONFIG)
    return files


def _text(file: Path, findings: Findings) -> str | None:
    try:
        if not file.is_file() and file.exists():  # a pipe would be waited for
            findings.add("", f"{file} is no file", "give a CredentialProviderConfig file", _CONFIG)
            return None
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        if why := too_large(len(content)):
            findings.add("", f"{file} {why}", "give a CredentialProviderConfig", _CONFIG)
            return None
        return content.decode("utf-8-sig")
    except OSError as error:
        findings.add("", f"{file} cannot be read: {error.strerror}", "give a CredentialProviderConfig file", _CONFIG)
    except UnicodeDecodeError:
        findings.add("", f"{file} is not text", "save it as UTF-8", _CONFIG)
    return None


def _check_file(
    text: str, file: str, gates: Mapping[str, bool], findings: Findings
) -> list[tuple[str, dict[str, Any]]]:
    """Return each provider that has a name, and the place of that; only the first document counts, as in the
    kubelet."""
    document = next(iter(read_documents(text, file, findings)), None) if text.strip() else None
    if document is None:
        if not findings.found:
            findings.add("", "is empty", f"write a {_KIND} into it")
        return []
    findings.places = document.places
    version = _version(document, findings)
    if not version:
        return []
    for key, place, first in document.repeated:
        findings.add(key, f"is given twice, first at {first}", "remove one of them", place)
    schema: dict[str, Schema] = {"apiVersion": Scalar.STRING, "kind": Scalar.STRING}
    schema["providers"] = ListOf(_PROVIDER | ({"tokenAttributes": _TOKEN} if version == "v1" else {}))
    _hide_secrets(document.data, findings)
    providers = decode(document.data, schema, document.places, findings, unknown=ERROR).data.get("providers") or []
    if any(finding.message != _UNKNOWN for finding in findings.found):
        return []  # what is of the wrong type would be missing below
    if not providers and not findings.found:
        findings.add("providers", "is empty", "name at least one provider")
    named = []
    for index, provider in enumerate(providers):
        key = f"providers[{index}]"
        _check_provider(key, provider, gates, findings)
        if _is_name(provider.get("name") or ""):
            named.append((_place(findings, f"{key}.name"), provider))
    return named


def _version(document: Document, findings: Findings) -> str:
    """Return the version of the file's format, "" after a finding."""
    group, _, version = str(document.data.get("apiVersion") or "").partition("/")
    if document.data.get("kind") != _KIND:
        findings.add("kind", f"must be {_KIND}", f"write kind: {_KIND}")
        return ""
    if group != _GROUP or version not in _VERSIONS:
        findings.add("apiVersion", f"must be {_GROUP}/ and one of {', '.join(_VERSIONS)}", f"write {_GROUP}/v1")
        return ""
    return version


def _hide_secrets(data: dict[str, Any], findings: Findings) -> None:
    """Check the types of arguments and of environment values here: a later check would print the value."""
    providers = data.get("providers")
    for index, provider in enumerate(providers if isinstance(providers, list) else ()):
        if not isinstance(provider, dict):
            continue
        env, args = provider.get("env"), provider.get("args")
        for place, entry in enumerate(env if isinstance(env, list) else ()):
            if isinstance(entry, dict) and not isinstance(entry.get("value", ""), str | None):
                _add(findings, f"providers[{index}].env[{place}].value", "must be a string", "put it in quotes")
                entry["value"] = ""
        if isinstance(args, list):
            for place in [place for place, arg in enumerate(args) if not isinstance(arg, str | None)]:
                _add(findings, f"providers[{index}].args[{place}]", "must be a string", "put it in quotes")
                args[place] = ""


def _is_name(name: str) -> bool:
    return bool(name) and "/" not in name and " " not in name and name not in (".", "..")


def _check_provider(key: str, provider: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    name = provider.get("name") or ""
    if not name:
        _add(findings, f"{key}.name", "is missing", "write the file name of the plugin")
    elif not _is_name(name):
        _add(findings, f"{key}.name", f'is "{name}", must be without / and space, and neither . nor ..', "rename it")
    if not provider.get("matchImages"):
        _add(findings, f"{key}.matchImages", "is empty", 'such as ["*.registry.example"]')
    for index, image in enumerate(provider.get("matchImages") or ()):
        if scheme_of(f"https://{image or ''}") is None:
            remedy = "such as *.registry.example:8080/team"
            _add(findings, f"{key}.matchImages[{index}]", f'is "{image}", which cannot be parsed', remedy)
    duration = provider.get("defaultCacheDuration")
    if duration is None:
        _add(findings, f"{key}.defaultCacheDuration", "is missing", "such as 12h, or 0s for no caching")
    elif parse_nanoseconds(duration) < 0:
        _add(findings, f"{key}.defaultCacheDuration", f'is "{duration}", must not be negative', "0s is no caching")
    version = provider.get("apiVersion") or ""
    if version not in (known := [f"{_API}/{one}" for one in _VERSIONS]):
        what = f'is "{version}", must be one of {", ".join(known)}' if version else "is missing"
        _add(findings, f"{key}.apiVersion", what, f"write {known[0]} if the plugin knows it")
    if (token := provider.get("tokenAttributes")) is not None:
        _check_token(f"{key}.tokenAttributes", token, version, gates, findings)


def _check_token(key: str, token: dict[str, Any], version: str, gates: Mapping[str, bool], findings: Findings) -> None:
    if not gates.get(_GATE):
        _add(findings, key, f"is set while feature gate {_GATE} is off", "remove it, or switch the gate on")
    if version != f"{_API}/v1":
        _add(findings, key, f"needs apiVersion {_API}/v1 of the provider", "raise that, or remove this")
    if not token.get("serviceAccountTokenAudience"):
        _add(findings, f"{key}.serviceAccountTokenAudience", "is missing", "name whom the token is for")
    if token.get("cacheType") not in _CACHE_TYPES:
        given = token.get("cacheType")
        what = f'is "{given}", must be one of {", ".join(_CACHE_TYPES)}' if given else "is missing"
        _add(findings, f"{key}.cacheType", what, "names are case-sensitive")
    if token.get("requireServiceAccount") is None:
        _add(findings, f"{key}.requireServiceAccount", "is missing", "write true or false")
    elif token.get(_REQUIRED) and not token["requireServiceAccount"]:
        _add(findings, f"{key}.{_REQUIRED}", "needs requireServiceAccount true", "set that, or remove these")
    for name in (_REQUIRED, _OPTIONAL):
        annotations = token.get(name) or []
        for index, annotation in enumerate(annotations):
            inner = f"{key}.{name}[{index}]"
            for problem in qualified_name((annotation or "").lower()):
                _add(findings, inner, f'"{annotation}": {problem}', "write the key of an annotation")
            if annotation in annotations[:index]:
                _add(findings, inner, f'"{annotation}" is given twice', "remove one of them")
    for both in sorted({*(token.get(_REQUIRED) or ())} & {*(token.get(_OPTIONAL) or ())}):
        _add(findings, f"{key}.{_OPTIONAL}", f'"{both}" is required, too', "keep it in one of the lists")


def _check_plugins(bin_dir: Path, names: dict[str, str], findings: Findings) -> None:
    try:
        bin_dir.stat()
    except OSError as error:
        findings.add("", f"{bin_dir} cannot be used: {error.strerror}", "give the directory of the plugins", _BIN_DIR)
        return
    for name, place in names.items():
        plugin = bin_dir / name
        if not (plugin.is_file() and os.access(plugin, os.X_OK)):
            findings.add("", f"plugin {plugin} is not there, or cannot be executed", "put it there", place)


def _add(findings: Findings, key: str, what: str, remedy: str) -> None:
    findings.add(key, what, remedy, _place(findings, key))


def _place(findings: Findings, key: str) -> str:
    """Return the place of the key, or of what is around it."""
    while key not in findings.places and ("." in key or "[" in key):
        key = key[: max(key.rfind("."), key.rfind("["))]
    return findings.places.get(key, findings.default_place)
