"""What a contract of the API server gets to work with, and the list of all contracts.

A contract is an async function of a Cluster; it holds for the real API server and for the double. It uses names of its
own, so that all of them can run on one cluster.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

from shared.kube import paths
from shared.kube.interface import ApiClient, ApiStatusError
from shared.model.objects import Object

T = TypeVar("T")


class Cluster(Protocol):
    """An API server with one node of the contract's own, which is registered, and an administrator."""

    node_name: str
    admin: ApiClient
    node: ApiClient  # speaks as system:node:<node_name>

    async def eventually(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result once it is neither forbidden nor not found any more: the real server's authorizer and admission
        learn of new pods late."""
        ...

    async def forget_history(self) -> None:
        """Make watches from resourceVersions before now impossible."""
        ...


Contract = Callable[[Any], Awaitable[None]]
CONTRACTS: list[Contract] = []


def contract(function: Contract) -> Contract:
    """Add it to the list."""
    CONTRACTS.append(function)
    return function


async def refused(request: Awaitable[Any]) -> ApiStatusError:
    """The error the server answers with; an AssertionError when it accepts."""
    try:
        await request
    except ApiStatusError as error:
        return error
    raise AssertionError("the API server accepted it")


async def refused_once_known(cluster: Cluster, request: Callable[[], Awaitable[Any]]) -> ApiStatusError:
    """The same, of a pod that was just made: until the real server's admission knows it, it is not found."""

    async def attempt() -> ApiStatusError:
        error = await refused(request())
        if error.code == HTTPStatus.NOT_FOUND:
            raise error
        return error

    return await cluster.eventually(attempt)


async def is_at_least(cluster: Cluster, major: int, minor: int) -> bool:
    """Whether the API server is of this version or newer."""
    found = await cluster.node.get(paths.VERSION)
    return (int(found["major"]), int(str(found["minor"]).rstrip("+"))) >= (major, minor)


async def has_no_pod(cluster: Cluster, pod: Object) -> bool:
    """Whether a GET of the node is answered as one of a pod that is gone. Since 1.32 that is 403, as the pod is related
    to the node no more; a moment earlier, when the authorizer does not know this yet, it is 404."""
    error = await refused(cluster.node.get(path_of(pod)))
    unrelated = f"no relationship found between node '{cluster.node_name}' and this object"
    if error.forbidden and unrelated in str(error):
        return await is_at_least(cluster, 1, 32)
    return error.not_found


async def make_pod(cluster: Cluster, name: str, node: str | None = None, **spec: Any) -> Object:
    """A pod made by the administrator, bound to the cluster's node, to `node`, or to none ("")."""
    node = cluster.node_name if node is None else node
    bound = {"nodeName": node} if node else {}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-{cluster.node_name}", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "busybox"}], **bound, **spec},
    }
    return await cluster.admin.create(paths.pods("default"), body)


def path_of(pod: Object) -> str:
    """The pod's path."""
    return paths.pod(pod["metadata"]["namespace"], pod["metadata"]["name"])


def status_path_of(pod: Object) -> str:
    """The path of the pod's status."""
    return paths.pod_status(pod["metadata"]["namespace"], pod["metadata"]["name"])


def version_of(obj: Object) -> str:
    """The resourceVersion."""
    return str(obj["metadata"]["resourceVersion"])
