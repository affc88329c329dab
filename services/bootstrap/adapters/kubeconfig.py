"""Resolves a kubeconfig to credentials in a short-lived child, which imports `cryptography`, and `kubernetes` for exec
plugins.

The child answers on its standard output, a pipe; it writes no file, so that a child whose bootstrap was killed leaves
nothing behind. Plugins run in its session and end with it. Rules: config.md 6.2.
"""

import base64
import binascii
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import Struct, field, to_builtins

from services.bootstrap.adapters.exec_plugin import PLUGIN_TIMEOUT_SECONDS, run_plugin_for
from services.bootstrap.adapters.resolved_credentials import (
    ExpiredError,
    ProblemError,
    ResolvedCredentials,
    TemporaryProblemError,
    TimeLimitError,
    check_material,
    earliest_end,
    file_text,
)
from services.bootstrap.core.kubeconfig import CurrentContext, read_current_context
from shared.model.frozen_copy import replace
from shared.yaml_reader.reader import Limits, UnreadableError, read_documents

_SERVICE_CA = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
_SERVICE_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_LIMITS = Limits(depth=100, values=2**19, characters=2**19)
_TIMEOUT_SECONDS = 50  # for the whole child; reading a file may hang, too


class KubeconfigReport(Struct, frozen=True, kw_only=True):
    """The result: problems (one line each), or material (None where a plugin was not to be run)."""

    problems: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # absolute paths that the kubeconfig names; known also where there are problems
    not_yet: bool = False  # the problem is a plugin that was run and failed, and may succeed later
    awaited: bool = False  # the problem is a certificate that was requested; a changed file will bring it
    absent: bool = False  # there is no such kubeconfig
    unreadable: bool = False  # its content is not known, because it cannot be opened or reading it did not end
    expires_at: float = 0.0  # wall seconds, 0 = only a changed file brings new ones
    plugin: bool = False  # the material comes from an exec plugin
    certificate_ends: float = 0.0  # wall seconds at which the first of the user's client certificates ends, 0 = none
    why_invalid: str = ""  # the problem of the user's own credentials where the managed pair replaces them
    cluster: dict[str, Any] = field(default_factory=dict)  # of the current context
    material: ResolvedCredentials | None = None
    inline: ResolvedCredentials | None = (
        None  # the pair written out in a kubeconfig whose user the managed pair replaces
    )


class ManagedPair(Struct, frozen=True, kw_only=True):
    """The files that replace the credentials of the kubeconfig's user; "" = there are none yet."""

    certificate: str = ""
    key: str = ""


def resolve_in_child(
    kubeconfig: str,
    *,
    timeout: int = PLUGIN_TIMEOUT_SECONDS,
    flag: str = "--kubeconfig",
    managed: ManagedPair | None = None,
) -> KubeconfigReport:
    """Resolve in a child process. Blocks up to a minute.

    An exec plugin gets `timeout` seconds; with 0 it is not run, and only what can be seen without it is checked.
    `flag` begins the lines. With `managed` no plugin is run, and the user's own credentials are only looked at.
    """
    command = [sys.executable, "-P", "-m", __name__]
    pair = to_builtins(managed) if managed is not None else None
    request = {"kubeconfig": kubeconfig, "timeout": timeout, "flag": flag, "managed": pair}
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as child:
            try:
                answer, _ = child.communicate(json.dumps(request).encode(), _TIMEOUT_SECONDS + 5)
            except BaseException:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                raise
        return _decode(answer)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:  # msgspec's are ValueErrors
        line = f"{flag}: {kubeconfig}: the check failed: {type(error).__name__} (is there memory and disk?)"
        return KubeconfigReport(problems=(line,), unreadable=True)


def _decode(answer: bytes) -> KubeconfigReport:
    return msgspec.convert(json.loads(answer), KubeconfigReport)


def resolve(
    kubeconfig: str,
    *,
    timeout: int,
    flag: str = "--kubeconfig",
    managed: ManagedPair | None = None,
) -> KubeconfigReport:
    """Read, check and resolve; the child's work."""
    where = f"{flag}: {kubeconfig}"
    report = KubeconfigReport()
    try:
        current = read_current_context(_read(kubeconfig), str(Path(kubeconfig).parent))
        report = replace(report, files=current.files, cluster=current.cluster)
        if current.problems:
            raise ProblemError(current.problems[0])
        if current.is_empty:
            inside, files = _inside_a_pod()
            return replace(report, material=inside, files=files)
        if managed is not None:
            return _replace_user(report, current, kubeconfig, managed)
        plain = _plain_material(current, kubeconfig)
        check_material(plain)
        ends = earliest_end(plain.certificate)
        if "exec" not in current.user:
            return replace(report, material=plain, certificate_ends=ends)
        if not timeout:
            return replace(report, certificate_ends=ends)
        material, expires_at = run_plugin_for(plain, current, str(Path(kubeconfig).parent), timeout)
        return replace(report, material=material, expires_at=expires_at, plugin=True, certificate_ends=ends)
    except ProblemError as error:
        cause = error.__cause__ if report == KubeconfigReport() else None  # of the kubeconfig, not of a file in it
        absent = isinstance(cause, FileNotFoundError)
        return replace(
            report,
            problems=(f"{where}: {error}",),
            not_yet=isinstance(error, TemporaryProblemError),
            absent=absent,
            unreadable=isinstance(cause, OSError) and not absent,
        )
    except TimeLimitError:
        line = f"{where}: could not be read within {_TIMEOUT_SECONDS} s (is a file in it a pipe, or on a lost mount?)"
        return replace(report, problems=(line,), unreadable=True)
    except Exception as error:  # an exception of a library, whose text may quote secrets
        line = f"{where}: cannot be resolved: {type(error).__name__} (check the current context's cluster and user)"
        return replace(report, problems=(line,))


def _replace_user(
    report: KubeconfigReport, current: CurrentContext, kubeconfig: str, managed: ManagedPair
) -> KubeconfigReport:
    """Return the credentials with the cluster of the kubeconfig and the managed pair as its user. Raises
    ProblemError."""
    try:
        plain = _plain_material(current, kubeconfig)
        check_material(plain)
        report = replace(report, certificate_ends=earliest_end(plain.certificate))
        if "client-certificate-data" in current.user:
            report = replace(report, inline=plain)
    except ExpiredError:
        pass  # it is used all the same, as by a kubelet; whether there are other credentials is decided elsewhere
    except ProblemError as error:
        report = replace(report, why_invalid=str(error))
    if not managed.certificate:
        line = "there is no client certificate yet (it was asked for; bootstrap's log has the progress)"
        return replace(report, problems=(f"--rotate-certificates: {line}",), awaited=True)
    user = {"client-certificate": managed.certificate, "client-key": managed.key}
    material = _plain_material(replace(current, user=user), kubeconfig)
    try:
        check_material(material)
    except ProblemError as error:
        line = f"--cert-dir: {managed.certificate}: {error}"
        return replace(report, problems=(line,), awaited=isinstance(error, ExpiredError))
    return replace(report, material=material)


def _read(kubeconfig: str) -> Any:
    text = file_text(kubeconfig, "")
    try:
        documents = list(read_documents(text, _LIMITS))
    except UnreadableError as error:
        at = f"line {error.position[0]}, column {error.position[1]}: " if error.position else ""
        raise ProblemError(f"is not YAML: {at}{error.why} (correct it)") from None
    if len(documents) > 1:
        raise ProblemError(f"holds {len(documents)} YAML documents (keep one)")
    return documents[0] if documents else None


def _plain_material(current: CurrentContext, kubeconfig: str) -> ResolvedCredentials:
    """Return the credentials of the checked context without its exec plugin. Raise ProblemError."""
    base, cluster, user = str(Path(kubeconfig).parent), current.cluster, current.user
    token = user.get("token", "")
    if path := user.get("tokenFile", ""):  # it takes precedence over a token in the kubeconfig, as with the kubelet
        token = file_text(str(Path(base, path)), "tokenFile").strip()
        if not token:
            raise ProblemError(f"tokenFile: {path} is empty (write the token into it)")
    return ResolvedCredentials(
        server=cluster["server"].rstrip("/"),
        ca=_pem(cluster, "certificate-authority", base),
        certificate=_pem(user, "client-certificate", base),
        key=_pem(user, "client-key", base),
        token=token.removeprefix("Bearer ").strip(),
        insecure_skip_tls_verify=cluster.get("insecure-skip-tls-verify", False),
        tls_server_name=cluster.get("tls-server-name", ""),
        proxy_url=cluster.get("proxy-url", ""),
    )


def _pem(part: dict[str, Any], key: str, base: str) -> str:
    """Return a PEM text, which is in the kubeconfig in base64 or in the file that it names; "" without either."""
    if data := part.get(f"{key}-data"):
        return _decoded(data, f"{key}-data")
    return file_text(str(Path(base, part[key])), key) if key in part else ""


def _decoded(text: str, key: str) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("ascii")
    except UnicodeDecodeError:
        raise ProblemError(f"{key} holds no PEM text (encode the PEM file with `base64 -w0`)") from None
    except (binascii.Error, ValueError):
        raise ProblemError(f"{key} is not base64 (encode the PEM file with `base64 -w0`)") from None


def _inside_a_pod() -> tuple[ResolvedCredentials, tuple[str, ...]]:
    """Return the credentials of an empty kubeconfig, which are those of the service account if we run in a pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ProblemError("is empty, and this is no pod with a service account (write clusters, users and contexts)")
    material = ResolvedCredentials(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca=file_text(_SERVICE_CA, "the service account's authority"),
        token=file_text(_SERVICE_TOKEN, "the service account's token").strip(),
    )
    check_material(material)
    return material, (_SERVICE_CA, _SERVICE_TOKEN)


def _out_of_time(*_: object) -> NoReturn:
    raise TimeLimitError


def _main() -> None:
    os.umask(0o077)
    signal.signal(signal.SIGALRM, _out_of_time)
    request = json.load(sys.stdin)
    signal.alarm(_TIMEOUT_SECONDS)
    managed = ManagedPair(**request["managed"]) if request["managed"] is not None else None
    report = resolve(request["kubeconfig"], timeout=request["timeout"], flag=request["flag"], managed=managed)
    signal.alarm(0)
    print(json.dumps(to_builtins(report)), flush=True)
    os.killpg(0, signal.SIGKILL)  # this also ends processes that a plugin left, even if bootstrap has ended


if __name__ == "__main__":
    _main()
