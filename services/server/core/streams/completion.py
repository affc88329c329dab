"""Forms the status for the client at the end of an exec or attach, from the runtime's error stream (server.md 13.3)."""

import json
from typing import Any

SUCCESS = b'{"metadata":{},"status":"Success"}'

_EXIT_CODE, _NON_ZERO = "ExitCode", "NonZeroExitCode"
_PLAIN_TEXT_PROTOCOLS = ("channel.k8s.io", "v2.channel.k8s.io", "v3.channel.k8s.io")


def completion(protocol: str, error_stream: bytes) -> bytes:
    """Return the status document for the complete content of the error stream; `protocol` is the one the runtime
    chose."""
    if not error_stream:
        return SUCCESS
    text = error_stream.decode("utf-8", "replace")
    if protocol in _PLAIN_TEXT_PROTOCOLS:
        return failure(f"error executing remote command: {text}")
    try:
        status = json.loads(error_stream)
    except ValueError as error:
        return failure(f"error stream protocol error: {error} in {text!r}")
    kind = status.get("status") if isinstance(status, dict) else None
    if kind == "Success":
        return SUCCESS
    if kind != "Failure":
        return failure(f"error stream protocol error: status {kind!r}")
    if status.get("reason") != _NON_ZERO:
        return failure(str(status.get("message") or ""))
    code = _exit_code(status)
    if code is None:
        return failure("error stream protocol error: no ExitCode cause given")
    return _document(
        message=f"command terminated with non-zero exit code: command terminated with exit code {code}",
        reason=_NON_ZERO,
        details={"causes": [{"reason": _EXIT_CODE, "message": str(code)}]},
    )


def failure(message: str) -> bytes:
    """Return the status document for an error between the client and the command."""
    return _document(
        message=f"Internal error occurred: {message}",
        reason="InternalError",
        details={"causes": [{"message": message}]},
        code=500,
    )


def _exit_code(status: dict[str, Any]) -> int | None:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == _EXIT_CODE:
            try:
                return int(cause.get("message", ""))
            except (TypeError, ValueError):
                return None
    return None


def _document(**fields: Any) -> bytes:
    status = {"metadata": {}, "status": "Failure", **fields}
    return json.dumps(status, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
