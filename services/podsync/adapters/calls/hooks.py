"""Carries out lifecycle hooks: exec, httpGet, sleep (pods.md 8.4). It has no timeout: the caller has one.
A cancelled hook leaves no task or connection of ours; a command in the container ends with the container.
"""

import asyncio
import ssl
from typing import Any, Literal

from services.podsync.adapters.calls.pod_operations import PodOperations, PodView
from services.podsync.core.sync.grace import sleep_seconds
from shared.cri.interface import RuntimeCallError
from shared.http_get.exchange import BodyError, answered_in_plain_text, exchange, go_error_text
from shared.http_get.request import MAX_REDIRECTS, BadRequestError, HttpTarget, redirected, target_of
from shared.http_get.response import ResponseHead
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.runtime import SandboxState
from shared.podspec.field_ref import go_quote
from shared.podspec.ports import container_port

MAX_BYTES = 10 * 1024  # of an answer's body, which is read and dropped, and of a command's output

HookName = Literal["postStart", "preStop"]


class HookFailedError(Exception):
    """The hook was carried out and failed, or could not be carried out; the text is the kubelet's. `without_output` is
    the text without what a command wrote, which may be a secret."""

    def __init__(self, text: str, without_output: str = "") -> None:
        super().__init__(text)
        self.without_output = without_output or text


class _HttpError(Exception):
    """The server sent no answer; the text is Go's."""


async def run_hook(
    operations: PodOperations, view: PodView, container: Object, container_id: str, name: HookName
) -> None:
    """Run lifecycle.<name> of the container to its end. Raises HookFailedError."""
    handler = (container.get("lifecycle") or {}).get(name) or {}
    whose = f"for Container {go_quote(str(container.get('name')))} in Pod {go_quote(view.description)} failed - error: "
    if isinstance(action := handler.get("exec"), dict):
        command = [str(part) for part in action.get("command") or ()]
        error, wrote, output = await _exec(operations, container_id, command)
        if error:
            hook = f"Exec lifecycle hook ([{' '.join(command)}]) {whose}{error}"
            raise HookFailedError(f"{hook}{wrote}, message: {go_quote(output)}", hook)
    elif isinstance(action := handler.get("httpGet"), dict):
        try:
            await _http_get(operations, view, container, action)
        except _HttpError as error:
            raise HookFailedError(f"HTTP lifecycle hook ({action.get('path') or ''}) {whose}{error}") from None
    elif isinstance(handler.get("sleep"), dict):
        await asyncio.sleep(sleep_seconds(container, name))
    else:
        raise HookFailedError(f"Cannot run handler: invalid handler: {', '.join(sorted(handler)) or 'none'}")


async def _exec(operations: PodOperations, container_id: str, command: list[str]) -> tuple[str, str, str]:
    """Run the command in the container. Return the error ("" = none), its continuation with stderr, and all output. The
    error names the command as in the spec, unexpanded."""
    try:
        result = await operations.runtime.exec_sync(container_id, command, 0)
    except RuntimeCallError as error:
        return str(error), "", ""
    if result.exit_code == 0:
        return "", "", ""
    return (
        f"command '{' '.join(command)}' exited with {result.exit_code}",
        f": {_text(result.stderr)}",
        _text(result.stdout + result.stderr),
    )


def _text(output: bytes) -> str:
    return output[:MAX_BYTES].decode("utf-8", "replace")


async def _http_get(operations: PodOperations, view: PodView, container: Object, action: Object) -> None:
    """Send the hook's request; any answer is a success. A server that speaks no TLS gets the request again without TLS,
    and then without credentials. Raises _HttpError."""
    host = str(action.get("host") or "") or await _pod_ip(operations, view)
    port = container_port(action.get("port"), container)
    if isinstance(port, str):
        raise _HttpError(port)
    headers = tuple((str(h.get("name") or ""), str(h.get("value") or "")) for h in action.get("httpHeaders") or ())
    scheme = str(action.get("scheme") or "HTTP").lower()
    user_agent = f"kube-lifecycle/{operations.facts.release}"
    try:
        target = target_of(scheme, host, port, str(action.get("path") or ""), headers, user_agent)
    except BadRequestError as error:
        raise _HttpError(str(error)) from None
    try:
        await _follow(target)
    except ssl.SSLError as error:
        if not answered_in_plain_text(error):
            raise _HttpError(_go_error(target, error)) from None
        plain = tuple((name, value) for name, value in target.headers if name != "Authorization")
        try:
            await _follow(replace(target, scheme="http", headers=plain))
        except (ssl.SSLError, _HttpError):
            raise _HttpError(_go_error(target, error)) from None


async def _follow(target: HttpTarget) -> None:
    """GET the target, and follow redirects to the same host. Raises ssl.SSLError, _HttpError."""

    def body_limit(head: ResponseHead) -> int:
        return MAX_BYTES if redirected(target, head.status, head.headers.get("location", "")) is None else 0

    for _ in range(MAX_REDIRECTS):
        try:
            head, _body = await exchange(target, body_limit)
        except BodyError:
            return  # any answer is a success, whatever its body
        except ssl.SSLError:
            raise
        except Exception as error:
            raise _HttpError(_go_error(target, error)) from error
        there = redirected(target, head.status, head.headers.get("location", ""))
        if there is None:
            return
        target = there
    raise _HttpError(f'Get "{target.url}": stopped after {MAX_REDIRECTS} redirects')


def _go_error(target: HttpTarget, error: Exception) -> str:
    return f'Get "{target.url}": {go_error_text(error)}'


async def _pod_ip(operations: PodOperations, view: PodView) -> str:
    """Return the pod's address as the runtime has it now; with hostNetwork the node's. Raises _HttpError."""
    if (view.pod.get("spec") or {}).get("hostNetwork"):
        addresses: tuple[Any, ...] = view.host_ips
    else:
        try:
            seen = await operations.look(view.uid)
        except RuntimeCallError as error:
            raise _HttpError(str(error)) from None
        addresses = next((box.ips for box in seen.sandboxes[:1] if box.state is SandboxState.READY), ())
    if not addresses:
        raise _HttpError("failed to find networking container: the runtime knows no address of the pod")
    return str(addresses[0])
