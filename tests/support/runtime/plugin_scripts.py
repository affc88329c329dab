"""Credential plugins for tests: shell scripts that log what they are asked, and the flags that name them."""

import json
from pathlib import Path
from typing import Any

from shared.model.objects import Object

API = "credentialprovider.kubelet.k8s.io/v1"
_PLUGIN = """#!/bin/sh
request=$(cat)
echo "$request" >> {log}
{body}
"""


def write_plugin(directory: Path, name: str, body: str) -> None:
    """Write a plugin that logs the request as `$request`, and then runs this text of sh."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(_PLUGIN.format(log=directory / f"{name}.log", body=body))
    path.chmod(0o755)


def answering(auth: Object, **fields: Any) -> str:
    """Return the body of a plugin that gives these credentials."""
    answer = {"kind": "CredentialProviderResponse", "apiVersion": API, "cacheKeyType": "Registry", "auth": auth}
    return f"echo '{json.dumps({**answer, **fields})}'"


def plugin_flags(directory: Path, *providers: Object) -> tuple[str, ...]:
    """Return the two flags for these providers; the plugins are in `directory`."""
    common = {"apiVersion": API, "defaultCacheDuration": "1h"}
    document = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig"}
    config = directory / "providers.yaml"
    config.write_text(json.dumps({**document, "providers": [{**common, **provider} for provider in providers]}))
    return f"--image-credential-provider-config={config}", f"--image-credential-provider-bin-dir={directory}"


def asked(directory: Path, name: str) -> list[dict[str, Any]]:
    """Return the requests that the plugin got, in order."""
    log = directory / f"{name}.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
