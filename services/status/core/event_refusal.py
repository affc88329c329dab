"""Decides whether a refused Event can be dropped silently, because its namespace is gone or being deleted. Pure."""

from shared.kube.interface import ApiStatusError
from shared.model.fields import dictionaries

_TERMINATING = "NamespaceTerminating"


def is_namespace_gone(error: ApiStatusError) -> bool:
    """Return whether this is the error of a create in a namespace that is gone or being deleted."""
    if error.not_found:
        return error.details.get("kind") == "namespaces"
    if not error.forbidden:
        return False
    reasons = [cause.get("reason") for cause in dictionaries(error.details.get("causes"))]
    return _TERMINATING in reasons or "because it is being terminated" in error.message
