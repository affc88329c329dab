"""Forms the attributes of a request for its authorization, and the texts of refusals (server.md 3). Requests no
review."""

from msgspec import Struct

from services.server.core.access.authentication import User

_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

_SUBRESOURCES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("/pods", ("pods", "proxy")),
    ("/runningpods", ("pods", "proxy")),
    ("/healthz", ("healthz", "proxy")),
    ("/configz", ("configz", "proxy")),
    ("/stats", ("stats",)),
    ("/metrics", ("metrics",)),
    ("/logs", ("log",)),
    ("/checkpoint", ("checkpoint",)),
    ("/statusz", ("statusz",)),
    ("/flagz", ("configz",)),
)


class Attributes(Struct, frozen=True):
    """One access question: always resource `nodes` in API group "", version v1, named after this node."""

    user: User
    verb: str  # "" for methods without one (HEAD, OPTIONS)
    subresource: str
    node: str


def questions(user: User, method: str, path: str, node: str) -> tuple[Attributes, ...]:
    """Return the questions to ask, in order; the first one that is allowed decides."""
    verb = _VERBS.get(method, "")
    for prefix, subresources in _SUBRESOURCES:
        if path == prefix or path.startswith(prefix + "/"):
            return tuple(Attributes(user, verb, subresource, node) for subresource in subresources)
    return (Attributes(user, verb, "proxy", node),)


def forbidden(asked: tuple[Attributes, ...]) -> str:
    """Return the body of the 403 when every question was denied."""
    first = asked[0]
    subresources = " ".join(question.subresource for question in asked)
    return f"Forbidden (user={first.user.name}, verb={first.verb}, resource=nodes, subresource(s)=[{subresources}])\n"


def error(question: Attributes) -> str:
    """Return the body of the 500 when a question could not be decided."""
    return (
        f"Authorization error (user={question.user.name}, verb={question.verb}, "
        f"resource=nodes, subresource={question.subresource})"
    )
