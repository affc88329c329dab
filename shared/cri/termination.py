"""The termination message of an exited container: from its mounted file, else from its log (pods.md 9.3).

Reads host files that a container's processes wrote: never follows a link, never opens what is not a regular file,
never reads more than the limits. Does not decide when; the observer asks once per exit.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

ANNOTATION_PATH = "io.kubernetes.container.terminationMessagePath"
ANNOTATION_POLICY = "io.kubernetes.container.terminationMessagePolicy"
FALLBACK_TO_LOGS = "FallbackToLogsOnError"
MAX_FILE_BYTES = 4096
MAX_LOG_BYTES = 2048
MAX_LOG_LINES = 80
_STREAMS = (b"stdout", b"stderr")
# 80 lines of 16 KiB (the runtime splits longer ones) fit in 1.3 MiB; what is kept is 2 KiB.
_LOG_WINDOW_BYTES = 1024 * 1024


def read_termination_message(
    annotations: Mapping[str, str],
    mounts: Iterable[tuple[str, str]],
    *,
    exit_code: int,
    reason: str,
    log_path: str,
) -> str:
    """Return the message as the API shows it, without the runtime's own in front. `mounts`: (container path, host
    path).

    Read errors become the text `Error on reading termination log <path>: <error>`, as in the kubelet.
    """
    path = annotations.get(ANNOTATION_PATH, "")
    text = ""
    if path:
        for container_path, host_path in mounts:
            if container_path != path:
                continue
            try:
                text = _tail(host_path, MAX_FILE_BYTES).decode(errors="replace")
            except FileNotFoundError:
                pass
            except OSError as error:
                return f"Error on reading termination log {host_path}: {_reason(host_path, error)}"
            break
    fallback = annotations.get(ANNOTATION_POLICY) == FALLBACK_TO_LOGS
    if text or not (fallback and exit_code != 0 and reason != "ContainerCannotRun"):
        return text
    try:
        return last_log_lines(_tail(log_path, _LOG_WINDOW_BYTES)).decode(errors="replace")
    except FileNotFoundError:
        missing = f"lstat {_first_missing(log_path)}: no such file or directory"
        text = f'failed to try resolving symlinks in path "{log_path}": {missing}'
        return f"Error on reading termination message from logs: {text}"
    except OSError as error:
        text = f'failed to open log file "{log_path}": {_reason(log_path, error)}'
        return f"Error on reading termination message from logs: {text}"


def last_log_lines(raw: bytes) -> bytes:
    """Return the payload of the last 80 lines of a CRI log, cut to its last 2048 bytes.

    A line is `<time> <stream> <tags> <payload>`; tag P is a piece without its newline. What is no such line is left
    out; one that has not been ended yet comes on top of the 80.
    """
    pieces: list[bytes] = []
    *lines, unended = raw.split(b"\n")
    for line in lines[-MAX_LOG_LINES:]:
        fields = line.split(b" ", 3)
        if len(fields) == 4 and fields[1] in _STREAMS:
            pieces.append(fields[3] if fields[2].split(b":")[0] == b"P" else fields[3] + b"\n")
    fields = unended.split(b" ", 3)
    if len(fields) == 4 and fields[1] in _STREAMS:
        pieces.append(fields[3])
    return b"".join(pieces)[-MAX_LOG_BYTES:]


def _tail(path: str, limit: int) -> bytes:
    """Return the last `limit` bytes. O_NONBLOCK: a FIFO planted at the path must not hang the agent."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "is not a regular file")
        return os.pread(descriptor, limit, max(0, status.st_size - limit))
    finally:
        os.close(descriptor)


def _first_missing(path: str) -> Path:
    """Return the component where the way to the path ends."""
    full = Path(path)
    return next((part for part in (*reversed(full.parents), full) if not os.path.lexists(part)), full)


def _reason(path: str, error: OSError) -> str:
    """Return Go's wording of a failed open or read."""
    return f"open {path}: {(error.strerror or str(error)).lower()}"
