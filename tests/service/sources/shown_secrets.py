"""Secrets in the double, pods that show them, and what sources publishes of them."""

from shared.model.objects import Object
from tests.service.sources.cluster import NODE, ClusterNode, pod

SECRETS = "/api/v1/namespaces/default/secrets"
USER = f"system:node:{NODE}"


def showing(name: str, *secrets: str) -> Object:
    """A pod that shows Secrets in volumes."""
    return pod(name, volumes=[{"name": secret, "secret": {"secretName": secret}} for secret in secrets])


def put_secret(node: ClusterNode, name: str) -> str:
    """Create or change it; its version."""
    stored = node.api.get(f"{SECRETS}/{name}") or {"data": {"k": ""}}
    data = {"k": f"{stored['data']['k']}aaaa"}
    return str(node.api.put(f"{SECRETS}/{name}", {"data": data})["metadata"]["resourceVersion"])


def version_of(node: ClusterNode, name: str) -> str | None:
    known = node.changed.state.get(f"Secret/default/{name}")
    return None if known is None else known.resource_version
