"""Decides whether a refused Event can be dropped silently: its namespace is being deleted, or gone. Pure."""

from shared.kube.interface import ApiStatusError

_TERMINATING = "NamespaceTerminating"


def is_namespace_gone(error: ApiStatusError) -> bool:
    """The answer to a create in a namespace that is no more, or not for long."""
    if error.not_found:
        return error.details.get("kind") == "namespaces"
    if not error.forbidden:
        return False
    causes = error.details.get("causes")
    reasons = [cause.get("reason") for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []
    return _TERMINATING in reasons or "because it is being terminated" in error.message
