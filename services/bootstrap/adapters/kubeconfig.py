"""A kubeconfig resolved to credentials, in a short-lived child that imports `kubernetes` and `cryptography`.

The child answers on its standard output, a pipe; it writes nothing that lasts, so that a child whose bootstrap was
killed leaves nothing behind. Plugins run in its session and end with it. Rules: reference config.md 6.2.
"""

import base64
import binascii
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import yaml

from services.bootstrap.adapters.exec_plugin import PLUGIN_PATIENCE, run_plugin_for
from services.bootstrap.adapters.material import (
    Material,
    NotYetError,
    OutOfTimeError,
    ProblemError,
    check_material,
    file_text,
)
from services.bootstrap.core.kubeconfig import Shape, read_shape

_PATIENCE = 50  # seconds for the whole child; reading a file may hang, too


@dataclass(frozen=True, kw_only=True)
class KubeconfigReport:
    """What came out: problems (one line each), or material (None where a plugin was not to be run)."""

    problems: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # that the kubeconfig names, absolute; known also where there are problems
    not_yet: bool = False  # the problem is a plugin that was run and failed: it may answer later
    expires_at: float = 0.0  # wall seconds, 0 = only a changed file brings new ones
    material: Material | None = None


def resolve_in_child(kubeconfig: str, directory: Path, *, patience: int = PLUGIN_PATIENCE) -> KubeconfigReport:
    """Resolve in a child process. `directory` takes the child's temporary files and exists. Blocks up to a minute.

    An exec plugin gets `patience` seconds; with 0 it is not run, and only what can be seen without it is checked.
    """
    command = [sys.executable, "-P", "-m", __name__]
    request = json.dumps({"kubeconfig": kubeconfig, "directory": str(directory), "patience": patience})
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as child:
            try:
                answer, _ = child.communicate(request.encode(), _PATIENCE + 5)
            except BaseException:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                raise
        return _decode(answer)
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        line = f"--kubeconfig: {kubeconfig}: the check failed: {type(error).__name__} (is there memory and disk?)"
        return KubeconfigReport(problems=(line,))


def _decode(answer: bytes) -> KubeconfigReport:
    fields = json.loads(answer)
    material = fields.pop("material")
    found = Material(**material) if material else None
    problems, files = tuple(fields.pop("problems")), tuple(fields.pop("files"))
    return KubeconfigReport(**fields, problems=problems, files=files, material=found)


def resolve(kubeconfig: str, directory: str, *, patience: int) -> KubeconfigReport:
    """Read, check and resolve; the child's work."""
    where = f"--kubeconfig: {kubeconfig}"
    shape = Shape()
    material: Material | None
    try:
        shape = read_shape(_read(kubeconfig), str(Path(kubeconfig).parent))
        if shape.problems:
            raise ProblemError(shape.problems[0])
        with tempfile.TemporaryDirectory(prefix=".resolving.", dir=directory, ignore_cleanup_errors=True) as scratch:
            if shape.is_empty:
                inside, files = _inside_a_pod()
                material, expires_at, shape = inside, 0.0, Shape(files=files)
            else:
                material, expires_at = _resolve(shape, kubeconfig, scratch, patience)
    except ProblemError as error:
        not_yet = isinstance(error, NotYetError)
        return KubeconfigReport(problems=(f"{where}: {error}",), files=shape.files, not_yet=not_yet)
    except OutOfTimeError:
        line = f"{where}: could not be read within {_PATIENCE} s (is a file in it a pipe, or on a lost mount?)"
        return KubeconfigReport(problems=(line,), files=shape.files)
    except Exception as error:  # a library's; its text may quote secrets
        line = f"{where}: cannot be resolved: {type(error).__name__} (check the current context's cluster and user)"
        return KubeconfigReport(problems=(line,), files=shape.files)
    return KubeconfigReport(files=shape.files, expires_at=expires_at, material=material)


def _read(kubeconfig: str) -> Any:
    text = file_text(kubeconfig, "")
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ProblemError(f"is not YAML: {at}{error.problem or 'cannot be parsed'} (mend it)") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ProblemError("is not YAML (mend it)") from None


def _resolve(shape: Shape, kubeconfig: str, scratch: str, patience: int) -> tuple[Material | None, float]:
    """Have the library resolve the one context that is left once the shape was checked."""
    from kubernetes.config.kube_config import KubeConfigLoader

    base = str(Path(kubeconfig).parent)
    user = {key: value for key, value in shape.user.items() if key != "exec"}
    if path := user.pop("tokenFile", ""):  # wins over a token written out, as with the kubelet
        user["token"] = file_text(str(Path(base, path)), "tokenFile").strip()
        if not user["token"]:
            raise ProblemError(f"tokenFile: {path} is empty (write the token into it)")
    for key in ("certificate-authority", "client-certificate", "client-key"):
        part = shape.cluster if key == "certificate-authority" else user
        if f"{key}-data" in part:
            _check_base64(part[f"{key}-data"], f"{key}-data")
        elif key in part:
            file_text(str(Path(base, part[key])), key)  # says what is wrong better than the library
    document = {
        "current-context": "only",
        "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
        "clusters": [{"name": "only", "cluster": shape.cluster}],
        "users": [{"name": "only", "user": user}],
    }
    found = SimpleNamespace(api_key={})
    loader = KubeConfigLoader(document, config_base_path=base, temp_file_path=scratch)
    loader.load_and_set(found)
    material = Material(
        server=str(found.host),
        ca=_pem(found, "ssl_ca_cert", "certificate-authority"),
        certificate=_pem(found, "cert_file", "client-certificate"),
        key=_pem(found, "key_file", "client-key"),
        token=str(found.api_key.get("BearerToken", "")).removeprefix("Bearer ").strip(),
        insecure_skip_tls_verify=not getattr(found, "verify_ssl", True),
        tls_server_name=shape.cluster.get("tls-server-name", ""),
        proxy_url=shape.cluster.get("proxy-url", ""),
    )
    check_material(material)
    if "exec" not in shape.user:
        return material, 0.0
    if not patience:
        return None, 0.0
    return run_plugin_for(material, shape, base, patience)


def _pem(found: SimpleNamespace, attribute: str, key: str) -> str:
    path = getattr(found, attribute, None)
    return file_text(path, key) if path else ""


def _check_base64(text: str, key: str) -> None:
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ProblemError(f"{key} is not base64 (encode the PEM file with `base64 -w0`)") from None


def _inside_a_pod() -> tuple[Material, tuple[str, ...]]:
    """An empty kubeconfig: the service account, where we run in a pod."""
    from kubernetes.config.incluster_config import SERVICE_CERT_FILENAME, SERVICE_TOKEN_FILENAME

    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ProblemError("is empty, and this is no pod with a service account (write clusters, users and contexts)")
    material = Material(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca=file_text(SERVICE_CERT_FILENAME, "the service account's authority"),
        token=file_text(SERVICE_TOKEN_FILENAME, "the service account's token").strip(),
    )
    check_material(material)
    return material, (SERVICE_CERT_FILENAME, SERVICE_TOKEN_FILENAME)


def _out_of_time(*_: object) -> NoReturn:
    raise OutOfTimeError


def _main() -> None:
    os.umask(0o077)
    signal.signal(signal.SIGALRM, _out_of_time)
    request = json.load(sys.stdin)
    signal.alarm(_PATIENCE)
    report = resolve(request["kubeconfig"], request["directory"], patience=request["patience"])
    signal.alarm(0)
    print(json.dumps(asdict(report)), flush=True)
    os.killpg(0, signal.SIGKILL)  # with us ends whatever a plugin left running, also when bootstrap is gone


if __name__ == "__main__":
    _main()
