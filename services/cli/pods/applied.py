"""`bulkhead pods apply`, `list` and `delete` submit manifests to the agent of this machine, which keeps them.

They speak HTTP over the Unix socket of the run directory. Files are split into documents, and ConfigMaps and Secrets
are sent before the pods that name them. The agent decides what a document may contain."""

import http.client
import json
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from services.cli.agent.local_agent import refuse_stopped
from services.cli.agent.local_server import connect
from services.cli.pods.manifest_files import Document, read_files
from services.cli.terminal.output import dump
from services.cli.terminal.table import table, terminal_width
from shared.agent.apply_api import MAX_APPLIED_BYTES, PATH, SOCKET
from shared.errors import OperatorError
from shared.text.plain_text import is_utf8, plain

_TIMEOUT_SECONDS = 30.0  # until an answer arrives
_ORDER = {"ConfigMap": 0, "Secret": 1}  # all other kinds follow

Write = Callable[[str], None]


def apply_files(run_dir: str, files: Sequence[str], namespace: str, out: Write, err: Write) -> int:
    """Apply every document of the files ("-" = standard input). Return the exit code."""
    try:
        documents = [_in_namespace(one, namespace) for one in read_files(files)]
    except OperatorError as error:
        err(str(error))
        return 1
    documents.sort(key=lambda one: _ORDER.get(str(one.get("kind")), len(_ORDER)))
    requests = (("POST", PATH, one, _name_of(one)) for one in documents)
    return _send_all(run_dir, requests, out, err)


def delete_applied(
    run_dir: str, files: Sequence[str], names: Sequence[str], namespace: str, out: Write, err: Write
) -> int:
    """Remove the objects that the files name, and those named by `kind/name`, or by the name of a pod. Return the exit
    code."""
    named = [tuple(name.split("/", 1)) if "/" in name else ("pod", name) for name in names]
    try:
        for text in (namespace, *names):
            if not is_utf8(text):
                raise OperatorError(
                    "is not UTF-8 text", where=text, remedy="bulkhead pods list --applied shows the names"
                )
        found = [
            (str(one.get("kind")), _space(one, namespace), _metadata(one).get("name")) for one in read_files(files)
        ] + [(kind, namespace or "default", name) for kind, name in named]
    except OperatorError as error:
        err(str(error))
        return 1
    requests = (
        ("DELETE", "/".join((PATH, *(quote(str(part), safe="") for part in parts))), None, "/".join(map(str, parts)))
        for parts in found
    )
    return _send_all(run_dir, requests, out, err)


def list_applied(run_dir: str, namespace: str, form: str, out: Write, err: Write) -> int:
    """Print the applied objects of one namespace, "" = all. Return the exit code."""
    try:
        with _Api(run_dir) as api:
            listed = api.send("GET", PATH)
    except OperatorError as error:
        err(str(error))
        return 1
    items = [one for one in listed["items"] if namespace in ("", one["metadata"]["namespace"])]
    rows = [[one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]] for one in items]
    if form != "text":
        out(dump({**listed, "items": items}, form))
    elif rows:
        for line in table(["KIND", "NAMESPACE", "NAME"], rows, terminal_width()):
            out(line)
    else:
        err("nothing was applied on this node" + (f" in namespace {namespace}" if namespace else ""))
    return 0


def _send_all(run_dir: str, requests: Iterable[tuple[str, str, Document | None, str]], out: Write, err: Write) -> int:
    """Send each request; a refusal does not stop the others."""
    code = 0
    try:
        refuse_stopped(run_dir, "sources")
        with _Api(run_dir) as api:
            for method, path, document, name in requests:
                try:
                    answer = api.send(method, path, document)
                except _RefusedError as error:
                    err(plain(f"{name}: {error}"))
                    code = 1
                else:
                    out(f"{_name_of(answer)} {answer.get('result')}")
    except OperatorError as error:
        err(str(error))
        return 1
    return code


class _RefusedError(Exception):
    """The agent has refused one request; `str()` is its message."""


class _Api:
    """A connection to the agent's socket."""

    def __init__(self, run_dir: str) -> None:
        self._path = Path(run_dir) / SOCKET

    def __enter__(self) -> "_Api":
        self._connection = http.client.HTTPConnection("bulkhead", timeout=_TIMEOUT_SECONDS)
        self._connection.sock = _connected(self._path)
        self._connection.auto_open = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, method: str, path: str, document: Document | None = None) -> Document:
        """Send a request, and return the object in the answer. Raises _RefusedError, or OperatorError where there is no
        answer."""
        body = None if document is None else json.dumps(document, ensure_ascii=False).encode()
        # A larger body is not sent: the agent would end the connection without reading the objects that follow.
        if body is not None and len(body) > MAX_APPLIED_BYTES:
            raise _RefusedError(f"larger than the {MAX_APPLIED_BYTES} bytes an object may have")
        try:
            self._connection.request(method, path, body)
            response = self._connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise OperatorError(
                f"no answer: {type(error).__name__}", where=str(self._path), remedy="read sources.log, and try it again"
            ) from error
        if response.status >= 400:
            raise _RefusedError(str(answer.get("message")))
        return dict(answer)


def _connected(path: Path) -> socket.socket:
    """Return the connection, and open it where needed. Raises OperatorError."""
    try:
        return connect(path, _TIMEOUT_SECONDS)
    except OSError as error:
        refused = isinstance(error, PermissionError)
        remedy = (
            "run it as the agent's user"
            if refused
            else "start the agent, or name its --run-dir; a node of a cluster takes no manifests: use kubectl"
        )
        raise OperatorError(f"no agent takes manifests: {error.strerror}", where=str(path), remedy=remedy) from error


def _metadata(document: Document) -> Document:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _space(document: Document, namespace: str) -> str:
    return str(_metadata(document).get("namespace") or namespace or "default")


def _in_namespace(document: Document, namespace: str) -> Document:
    if not namespace or not isinstance(document.get("metadata"), dict):
        return document
    return {**document, "metadata": {**document["metadata"], "namespace": _space(document, namespace)}}


def _name_of(document: Document) -> str:
    return f"{str(document.get('kind')).lower()}/{_metadata(document).get('name')}"
