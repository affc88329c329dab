"""Raw Kubernetes objects as they travel: plain JSON dicts, with the few readers that every part needs.

Kubernetes objects stay raw so that a field this version does not know survives the way through all processes.
"""

from typing import Any

Object = dict[str, Any]


def uid(obj: Object) -> str:
    """Return the object's metadata.uid, "" when absent."""
    return str((obj.get("metadata") or {}).get("uid") or "")


def name(obj: Object) -> str:
    """Return the object's metadata.name, "" when absent."""
    return str((obj.get("metadata") or {}).get("name") or "")


def namespace(obj: Object) -> str:
    """Return the object's metadata.namespace, "" when absent."""
    return str((obj.get("metadata") or {}).get("namespace") or "")


def full_name(pod: Object) -> str:
    """Return `<name>_<namespace>`, which the kubelet calls a pod's full name (pods.md, notation)."""
    return f"{name(pod)}_{namespace(pod)}"


def describe(pod: Object) -> str:
    """Return `<name>_<namespace>(<uid>)`, the form that kubelet messages use for a pod (pods.md, notation)."""
    return f"{full_name(pod)}({uid(pod)})"


def annotations(obj: Object) -> dict[str, str]:
    """Return the object's annotations; empty when absent."""
    return dict((obj.get("metadata") or {}).get("annotations") or {})


def labels(obj: Object) -> dict[str, str]:
    """Return the object's labels; empty when absent."""
    return dict((obj.get("metadata") or {}).get("labels") or {})
