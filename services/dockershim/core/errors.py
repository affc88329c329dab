"""Errors that a caller of CRI gets, by gRPC's code."""


class CallError(Exception):
    """A call fails with this gRPC code (by its name in Go) and description."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description)
        self.code = code


def not_found(kind: str, key: str) -> CallError:
    """Return the error for a sandbox, container or image that is not there."""
    return CallError("NotFound", f"{kind} {key!r} does not exist")


def unsupported(what: str) -> CallError:
    """Return the error for something that Docker has no means for."""
    return CallError("InvalidArgument", f"Docker cannot do this: {what}")
