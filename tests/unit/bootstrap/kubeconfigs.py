"""Kubeconfigs for tests: one good one, to be bent."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.unit.kube.tls_world import Pair

SERVER = "https://127.0.0.1:6443"


def kubeconfig(user: Mapping[str, Any] | None = None, /, **cluster: Any) -> dict[str, Any]:
    """A document with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **cluster}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user if user is not None else {"token": "t0p"}}],
        "current-context": "x",
    }


def inline(pair: Pair) -> dict[str, str]:
    """A user with the pair in the kubeconfig itself."""
    return {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}


def encoded(content: bytes) -> str:
    """Base64, as a kubeconfig has it."""
    return base64.b64encode(content).decode()


def write(path: Path, document: dict[str, Any]) -> Path:
    """Write it; JSON is YAML."""
    path.write_text(json.dumps(document))
    return path


def plugin(path: Path, answer: str, version: str = "client.authentication.k8s.io/v1", **more: Any) -> dict[str, Any]:
    """Return a user whose credentials a shell script prints; `answer` is the script's body. An earlier script is
    replaced by a rename: one that is open for writing cannot be executed, and the agent may run it at any moment."""
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text(f"#!/bin/sh\n{answer}\n")
    scratch.chmod(0o755)
    scratch.rename(path)
    return {"exec": {"apiVersion": version, "command": str(path), "interactiveMode": "Never", **more}}


def exec_output(status: dict[str, Any], version: str = "client.authentication.k8s.io/v1") -> str:
    """The body of a script that prints an ExecCredential."""
    text = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    return f"cat <<'END'\n{text}\nEND"
