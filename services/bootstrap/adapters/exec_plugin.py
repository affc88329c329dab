"""Runs a kubeconfig's exec plugin by the `kubernetes` package, in the short-lived child, without a terminal.

A plugin that is not there, or is no program, is a mistake in the kubeconfig. One that can be run and then fails, hangs
or prints nothing that can be used is a temporary failure (a machine boots before its network): TemporaryProblemError.
"""

import base64
import errno
import signal
from datetime import UTC, datetime

from msgspec import to_builtins

from services.bootstrap.adapters.resolved_credentials import (
    ProblemError,
    ResolvedCredentials,
    TemporaryProblemError,
    TimeLimitError,
    check_material,
)
from services.bootstrap.core.kubeconfig import CurrentContext
from shared.time.timestamps import parse_rfc3339

PLUGIN_TIMEOUT_SECONDS = 30
FIRST_TIMEOUT_SECONDS = 5  # at the start, where everything else waits, because static pods must not be delayed
# Errors of a start that come from the state of the machine and not from the program.
_SHORT_OF = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ETXTBSY)
_MAX_SHOWN_CHARACTERS = 200  # of a plugin's error output


def run_plugin_for(
    material: ResolvedCredentials, current: CurrentContext, base: str, timeout: int
) -> tuple[ResolvedCredentials, float]:
    """Run the exec plugin for at most `timeout` seconds; its output takes the place of the user's own credentials.

    Also the wall seconds at which that ends, 0 = never. `base`: its directory. Raises TemporaryProblemError,
    and ProblemError for a plugin that cannot be run at all.
    """
    try:
        return _run(material, current, base, timeout)
    except ProblemError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno not in _SHORT_OF:
            raise
        raise TemporaryProblemError(str(error)) from None


def _run(
    material: ResolvedCredentials, current: CurrentContext, base: str, timeout: int
) -> tuple[ResolvedCredentials, float]:
    """Raises ProblemError; from an OSError, where the plugin could not be started."""
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode

    plugin = {key: value for key, value in current.user["exec"].items() if value is not None}
    command = plugin["command"]
    cluster = {key: value for key, value in current.cluster.items() if key != "certificate-authority"}
    if material.ca:
        cluster["certificate-authority-data"] = base64.b64encode(material.ca.encode()).decode()
    hint = " ".join(str(plugin.get("installHint") or "see that it is installed and executable").split())[
        :_MAX_SHOWN_CHARACTERS
    ]
    signal.alarm(timeout)
    try:
        provider = ExecProvider(ConfigNode("exec", plugin), base, ConfigNode("cluster", cluster))
        status = provider.run()
    except TimeLimitError:
        what = f"exec: {command} did not end in time (run it by hand; it must not ask for input)"
        raise ProblemError(what) from None
    except OSError as error:
        raise ProblemError(f"exec: {command} cannot be run: {error.strerror} ({hint})") from error
    except ConfigException as error:
        text = " ".join(str(error).removeprefix("exec: ").split())[:_MAX_SHOWN_CHARACTERS]
        raise ProblemError(f"exec: {command}: {text} (run it by hand)") from None
    finally:
        signal.alarm(0)
    if not isinstance(status, dict):
        raise ProblemError(f"exec: {command} gave no status (it must print an ExecCredential)")
    texts = {}
    for name in ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp"):
        value = status.get(name) or ""
        if not isinstance(value, str):
            raise ProblemError(f"exec: {command} gave a {name} that is no text (it must print an ExecCredential)")
        texts[name] = value
    if not texts["token"] and not texts["clientCertificateData"]:
        raise ProblemError(f"exec: {command} gave neither token nor clientCertificateData (run it by hand)")
    fields = to_builtins(material)
    if texts["token"]:
        fields["token"] = texts["token"].strip()
    if texts["clientCertificateData"] or texts["clientKeyData"]:
        fields |= {"certificate": texts["clientCertificateData"], "key": texts["clientKeyData"]}
    made = ResolvedCredentials(**fields)
    ends = check_material(made, f"exec: {command}: ")
    expires = [ends] if texts["clientCertificateData"] and ends else []
    if texts["expirationTimestamp"]:
        moment = parse_rfc3339(texts["expirationTimestamp"])
        if moment is None:
            raise ProblemError(f"exec: {command} gave an expirationTimestamp that is no time (run it by hand)")
        expires.append(moment)
    if expires and min(expires) <= datetime.now(UTC).timestamp():
        raise ProblemError(f"exec: {command} gave credentials that have expired (check its cache, and the clock)")
    return made, min(expires, default=0.0)
