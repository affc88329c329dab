"""A Kubernetes Event to be recorded: stream `events/<service>`, disposable by contract."""

from msgspec import Struct

MAX_KEPT_EVENTS = 200  # events on the stream of each writer


class KubeEvent(Struct, frozen=True, kw_only=True):
    """Key: a number that grows within the writer's incarnation; a writer keeps the newest `KEPT`."""

    type: str  # `Normal` or `Warning`
    reason: str  # as in the Event
    message: str  # as in the Event
    kind: str = "Pod"  # of the involved object
    namespace: str = ""  # of the involved object
    name: str = ""  # of the involved object
    uid: str = ""  # of the involved object
    field_path: str = ""  # of the involved object
    resource_version: str = ""  # of the involved object, where known
    annotations: tuple[tuple[str, str], ...] = ()  # of the Event itself
    time: str = ""  # RFC 3339 with microseconds, the writer's wall clock
