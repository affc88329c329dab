"""Finds and reads the drop-ins of `--config-dir` as the kubelet does (config.md 3.5).

Decides which files count and in what order; their content is merged in `layers`. Only reads.
"""

import itertools
import os
import select
import stat
from dataclasses import dataclass, field

from shared.config.document import MAX_FILE_BYTES, Document, read_documents, too_large
from shared.config.findings import WARNING, Findings

KIND, API_VERSION = "KubeletConfiguration", "kubelet.config.k8s.io/v1beta1"
_MAX_ENTRIES = 10_000  # of the whole directory; a mistyped one, such as /, has no end
_MAX_BYTES = 4 * MAX_FILE_BYTES
_PIPE_TIMEOUT_MILLISECONDS = 5000  # to wait for the writer of a pipe
_FLAG = "--config-dir"


@dataclass
class DropIns:
    """What the directory holds: the documents in the order they are merged, and files that do not count."""

    documents: list[Document] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def read_drop_ins(directory: str, findings: Findings) -> DropIns:
    """Return all `*.conf` below the directory, in order. What cannot be read or is no drop-in becomes a finding."""
    found = DropIns()
    if os.path.islink(directory) and os.path.isdir(directory):  # noqa: PTH112, PTH114 (Path drops a final /)
        what = f"{directory} is a symbolic link, which is not followed: it holds no drop-ins"
        findings.add("", what, "name the directory it leads to", _FLAG, WARNING)
    try:
        files = _walk(directory, found.ignored)
    except OSError as error:
        findings.add(
            "",
            f"{os.fsdecode(error.filename or directory)} cannot be read: {error.strerror}",
            "repair it",
            place=_FLAG,
        )
        return found
    except OverflowError:
        what = f"{directory} holds more than {_MAX_ENTRIES} files and directories"
        findings.add("", what, "name the directory of the drop-ins", place=_FLAG)
        return found
    size = 0
    for file in files:
        text = read_text(file, findings, file)
        size += len(text or "")
        if size > _MAX_BYTES:
            what = f"{directory}: the drop-ins have more than {_MAX_BYTES // 1024} KiB in all"
            findings.add("", what, "remove some", place=_FLAG)
            return found
        if text is not None and (document := _read(text, file, findings)):
            found.documents.append(document)
    return found


def _walk(directory: str, ignored: list[str]) -> list[str]:
    """Return the files that count, in lexical order by level. A symlink is a file, whatever it leads to. Raises
    OSError.
    """
    files: list[str] = []
    entries = 0
    pending = [os.fsencode(directory)]
    while pending:
        path = pending.pop()
        entries += 1
        if entries > _MAX_ENTRIES:
            raise OverflowError
        if stat.S_ISDIR(os.lstat(path).st_mode):
            with os.scandir(path) as listing:
                below = [entry.path for entry in itertools.islice(listing, _MAX_ENTRIES)]
            pending += sorted(below, reverse=True)
            if entries + len(pending) > _MAX_ENTRIES:
                raise OverflowError
        else:
            extension = b"." + path.rpartition(b".")[2] if b"." in path.rpartition(b"/")[2] else b""
            (files if extension == b".conf" else ignored).append(os.fsdecode(path))
    return files


def _read(text: str, file: str, findings: Findings) -> Document | None:
    before = len(findings.found)
    documents = read_documents(text, file, findings)
    if not documents:
        if len(findings.found) == before:
            findings.add("", "is empty", f"write a {KIND} into it, or remove it", place=file)
        return None
    document = documents[0]
    check_head(document, findings)
    for key, place, first in document.repeated:
        findings.add(key, f"is given twice, first at {first}", "remove one of them", place)
    for further in documents[1:]:
        what = "is a further document, which is ignored"
        findings.add("", what, "give it a file of its own", further.place, WARNING)
    return document


def check_head(document: Document, findings: Findings) -> None:
    """Note a wrong or missing apiVersion and kind."""
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        given = document.data.get(key)
        if given != wanted:
            what = "is missing" if given is None else f'is "{given}"'
            place = document.places.get(key, document.place)
            findings.add(key, what, f"write {key}: {wanted}", place=place)


def read_text(file: str, findings: Findings, place: str) -> str | None:
    """Return the text of a configuration file, or None after a finding at `place`. Waits for no writer of a pipe."""
    named = "" if place == file else f"{file} "
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            content = _content(fd, is_pipe=stat.S_ISFIFO(os.fstat(fd).st_mode))
        finally:
            os.close(fd)
        if why := too_large(len(content)):
            findings.add("", f"{named}{why}", "nothing that a kubelet reads is so long", place=place)
            return None
        return content.decode("utf-8-sig")
    except OSError as error:
        remedy = f"give the path of a {KIND} file"
        findings.add("", f"{named}cannot be read: {error.strerror or error}", remedy, place=place)
    except UnicodeDecodeError:
        findings.add("", f"{named}is not text", "save it as UTF-8", place=place)
    return None


def _await_writer(fd: int) -> None:
    """Until the pipe has something or ends, for so long. Raises TimeoutError."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(_PIPE_TIMEOUT_MILLISECONDS):
        raise TimeoutError(110, "no process writes into this pipe")


def _content(fd: int, *, is_pipe: bool) -> bytes:
    """Return the file's content, of a longer file its first MAX_FILE_BYTES + 1 bytes. Raises OSError."""
    content = b""
    while len(content) <= MAX_FILE_BYTES:
        if is_pipe:
            _await_writer(fd)
        block = os.read(fd, MAX_FILE_BYTES + 1 - len(content))
        if not block:
            break
        content += block
    return content
