"""Reads the API server, or the kubelet's own port, with the credentials of the kubeconfig.

Bounded: pages, bytes and time. Key and certificate stay in memory, so that nothing is written. The client of the
`kubernetes` package would do the same, but its import costs as much CPU as the whole rest of a command.
"""

import json
import os
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote, unquote, urlencode

import urllib3
from urllib3.exceptions import HTTPError, InsecureRequestWarning
from urllib3.util import parse_url

from services.bootstrap.adapters.resolved_credentials import ResolvedCredentials
from shared.kube.environment_proxy import UnsupportedProxyError, proxy_of_environment
from shared.model.objects import Object

PAGE_PODS = 250  # pods in one answer
_MAX_PAGES = 20
_MAX_ANSWER_BYTES = 64 << 20  # of one answer
_CONNECTION = re.compile(r"^<?[\w.]*Connection\w*[^:]*?(?:\(.*?\)|at 0x[0-9a-f]+>): ")
_EXTRA_SECONDS = 0.5  # after the deadline, in which urllib3 itself notices it and names the reason
_MAX_MESSAGE_CHARACTERS = 500  # of a message of the API server that are shown
_MAX_ERROR_CHARACTERS = 200  # of an error that are shown


class ReadError(Exception):
    """There is no usable answer; `str()` is one line. `code`: the HTTP status, 0 = none."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(" ".join(text.split())[:_MAX_ERROR_CHARACTERS])
        self.code = code


class ApiServer:
    """A connection to `server`. `deadline`: CLOCK_MONOTONIC seconds at which every request has ended. `direct`: no
    proxy is used, whatever the environment says, as for a server on this machine."""

    def __init__(self, server: str, credentials: ResolvedCredentials, deadline: float, *, direct: bool = False) -> None:
        self._server, self._credentials, self._deadline, self._direct = server, credentials, deadline, direct

    def __enter__(self) -> Self:
        if self._credentials.insecure_skip_tls_verify:  # set in the kubeconfig, or by this command for a kubelet
            urllib3.disable_warnings(InsecureRequestWarning)
        options: dict[str, Any] = {"retries": False, "ssl_context": _tls(self._credentials)}
        if self._credentials.tls_server_name:
            options["server_hostname"] = self._credentials.tls_server_name
        try:
            proxy = "" if self._direct else self._credentials.proxy_url or proxy_of_environment(self._server)
            if proxy and (user := parse_url(proxy).auth):
                options["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=unquote(user))
            self._pools = urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)
        except UnsupportedProxyError as error:
            raise ReadError(f"cannot be reached: {error}") from None
        except (HTTPError, ValueError) as error:  # the error may quote the URL, which may contain a password
            raise ReadError("is behind a proxy that cannot be used: its URL must begin with http://") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._pools.clear()

    def version(self) -> str:
        """Return the `gitVersion` of the API server. Raises ReadError."""
        return str(self.get("/version").get("gitVersion") or "")

    def node(self, name: str) -> Object:
        """Return the Node. Raises ReadError."""
        return self.get(f"/api/v1/nodes/{quote(name, safe='')}")

    def pods(self, node: str) -> list[Object]:
        """Return the pods that are bound to the node, at most 5000. Raises ReadError."""
        query = {"fieldSelector": f"spec.nodeName={node}", "limit": str(PAGE_PODS)}
        found: list[Object] = []
        for _ in range(_MAX_PAGES):
            page = self.get(f"/api/v1/pods?{urlencode(query)}")
            found += items_of(page)
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return found
            query["continue"] = str(following)
        raise ReadError(f"there are more than {_MAX_PAGES * PAGE_PODS} pods")

    def volume_of(self, namespace: str, claim: str) -> Object | None:
        """Return the spec of the PersistentVolume that the claim is bound to; None = it is bound to none. Raises
        ReadError.
        """
        space, name = quote(namespace, safe=""), quote(claim, safe="")
        bound = self.get(f"/api/v1/namespaces/{space}/persistentvolumeclaims/{name}").get("spec") or {}
        if not bound.get("volumeName"):
            return None
        return dict(self.get(f"/api/v1/persistentvolumes/{quote(bound['volumeName'], safe='')}").get("spec") or {})

    def get(self, path: str) -> Object:
        """Return the JSON object at the path. Raises ReadError."""
        ended: list[Object | Exception] = []

        def read() -> None:
            try:
                ended.append(self._read(path))
            except Exception as error:
                ended.append(error)

        # The read has a deadline as a whole, because urllib3 bounds only the time between two pieces of an answer: a
        # server that sends one byte at a time would take hours.
        reading = threading.Thread(target=read, name=f"GET {path}", daemon=True)
        reading.start()
        reading.join(max(self._deadline - time.monotonic(), 0.0) + _EXTRA_SECONDS)
        found = ended[0] if ended else ReadError("does not answer: the answer takes too long")
        if isinstance(found, Exception):
            raise found
        return found

    def _read(self, path: str) -> Object:
        headers = {"Accept": "application/json"}
        if self._credentials.token:
            headers["Authorization"] = f"Bearer {self._credentials.token}"
        try:
            answer = self._pools.request(
                "GET",
                f"{self._server}{path}",
                headers=headers,
                timeout=max(self._deadline - time.monotonic(), 0.001),
                redirect=False,
                preload_content=False,
            )
            try:
                content = self._content(answer)
            finally:
                answer.close()
        except (HTTPError, OSError, ValueError) as error:
            raise ReadError(f"does not answer: {_cause(error)}") from error
        if answer.status != 200:
            raise ReadError(f"answers {answer.status} {answer.reason or ''}: {_message(content)}", answer.status)
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            raise ReadError("answers with something other than JSON") from None
        if not isinstance(found, dict):
            raise ReadError("answers with something other than an object")
        return found

    def _content(self, answer: Any) -> bytes:
        parts, size = [], 0
        while part := answer.read(1 << 16):
            parts.append(part)
            size += len(part)
            if size > _MAX_ANSWER_BYTES:
                raise ReadError(f"answers with more than {_MAX_ANSWER_BYTES >> 20} MiB")
            if time.monotonic() > self._deadline:
                raise ReadError("does not answer: the answer takes too long")
        return b"".join(parts)


def items_of(listed: Object) -> list[Object]:
    """Return the objects of a list."""
    items = listed.get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _tls(credentials: ResolvedCredentials) -> ssl.SSLContext:
    """Return the TLS context, as the agent's own connections have it (`shared.kube.connection`). Raises ReadError."""
    try:
        context = ssl.create_default_context(cadata=credentials.ca or None)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if credentials.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credentials.certificate:
            with _in_memory(credentials.certificate) as certificate, _in_memory(credentials.key) as key:
                context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise ReadError(f"cannot be asked with these credentials: {error}") from error
    return context


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Yield the path of a file in memory with this text."""
    file = os.memfd_create("credential", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(file), "wb") as opened:
            opened.write(text.encode())
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def _cause(error: BaseException) -> str:
    """Return the innermost reason of the error, without the URL and the object's address that urllib3 puts before
    it."""
    reason = getattr(error, "reason", None)
    while isinstance(reason, BaseException) and (inner := getattr(reason, "reason", None)) is not None:
        reason = inner
    return _CONNECTION.sub("", str(reason or error))


def _message(content: bytes) -> str:
    try:
        return str(json.loads(content)["message"])[:_MAX_MESSAGE_CHARACTERS]
    except (ValueError, KeyError, TypeError, RecursionError):
        return content[: 4 * _MAX_ERROR_CHARACTERS].decode("utf-8", "replace")[:_MAX_ERROR_CHARACTERS]
