"""Finds the node's credentials, and those for certificate requests, in kubeconfig, bootstrap kubeconfig and certificate
store.

It reads files, through a child, and writes the kubeconfig. `core.client_plan` decides. Rules: config.md 5.4.
"""

from pathlib import Path

import yaml
from msgspec import Struct

from services.bootstrap.adapters.certificate_store import CertificateStore, make_directory
from services.bootstrap.adapters.exec_plugin import PLUGIN_TIMEOUT_SECONDS
from services.bootstrap.adapters.kubeconfig import KubeconfigReport, ManagedPair, resolve_in_child
from services.bootstrap.core.client_plan import ClientPlan, plan_client
from services.bootstrap.core.kubeconfig_document import written_kubeconfig
from shared.config.effective import EffectiveConfig
from shared.files.atomic import write_atomically
from shared.model.frozen_copy import replace

_BOOTSTRAP = "--bootstrap-kubeconfig"
_ASKED = "there is no valid client certificate yet (a start asks for one; bootstrap's log has the progress)"


class ClientInspection(Struct, frozen=True):
    """The result of an inspection. `bootstrap`: that of the bootstrap kubeconfig, where the plan needs it."""

    plan: ClientPlan
    report: KubeconfigReport
    bootstrap: KubeconfigReport | None = None

    @property
    def refusal(self) -> KubeconfigReport | None:
        """Return the report whose problems only an operator can correct, None = there is none."""
        if self.bootstrap is not None:
            return self.bootstrap if self.bootstrap.problems and not self.bootstrap.not_yet else None
        return self.report if self.report.problems and not self.report.awaited else None


def client_store(config: EffectiveConfig) -> CertificateStore:
    """Return the store of the client certificate."""
    return CertificateStore("kubelet-client", config.cert_dir)


def serving_store(config: EffectiveConfig) -> CertificateStore:
    """Return the store of a serving certificate that is requested; the configured pair is used until then."""
    return CertificateStore("kubelet-server", config.cert_dir, (config.tls_cert_file, config.tls_private_key_file))


def inspect_client(config: EffectiveConfig, wall: float, *, timeout: int = PLUGIN_TIMEOUT_SECONDS) -> ClientInspection:
    """Look at everything once, in children. Blocks; a plugin gets `timeout` seconds."""
    report = resolve_ordinary(config, wall, timeout=timeout)
    if not config.bootstrap_kubeconfig or report.unreadable:
        plan = plan_client(rotate=config.rotate_certificates, bootstrap_given=False, still_valid=False)
        if report.awaited and report.why_invalid and not report.unreadable:  # no credentials can request a certificate
            line = f"--kubeconfig: {config.kubeconfig}: {report.why_invalid}"
            report = replace(report, problems=(line,), awaited=False)
        return ClientInspection(plan, report)
    plan = plan_client(
        rotate=config.rotate_certificates, bootstrap_given=True, still_valid=report.certificate_ends > wall
    )
    if plan in (ClientPlan.AS_IS, ClientPlan.MANAGED):
        return ClientInspection(plan, report)
    return ClientInspection(plan, report, inspect_bootstrap(config, timeout=timeout))


def find_refusal(config: EffectiveConfig, wall: float) -> tuple[str, ...]:
    """Read the credentials of the configuration once, and return why a running agent would not change to them.

    () where it would. Blocks.
    """
    look = inspect_client(config, wall)
    report = look.refusal or look.report
    return () if report.material is not None or (report.awaited and look.refusal is None) else report.problems


def inspect_bootstrap(config: EffectiveConfig, *, timeout: int = 0) -> KubeconfigReport:
    """Inspect the bootstrap kubeconfig. Blocks; a plugin gets `timeout` seconds, and is not run with 0."""
    return resolve_in_child(config.bootstrap_kubeconfig, timeout=timeout, flag=_BOOTSTRAP)


def resolve_ordinary(
    config: EffectiveConfig, wall: float, *, timeout: int = PLUGIN_TIMEOUT_SECONDS
) -> KubeconfigReport:
    """Resolve the credentials for everything but requests for certificates. Blocks; a plugin gets `timeout` seconds.

    With rotation only the managed certificate is used, and all other credentials of the kubeconfig's user are left out.
    """
    if config.rotate_certificates:
        store = client_store(config)
        files = store.find()
        pair = ManagedPair(certificate=str(files.certificate), key=str(files.key)) if files else ManagedPair()
        report = resolve_in_child(config.kubeconfig, timeout=0, managed=pair)
        report = replace(report, files=tuple(dict.fromkeys((*report.files, str(store.current)))))
        missing = report.absent and bool(config.bootstrap_kubeconfig)
        return replace(report, awaited=True) if missing else report
    if not config.bootstrap_kubeconfig:
        return resolve_in_child(config.kubeconfig, timeout=timeout)
    report = resolve_in_child(config.kubeconfig, timeout=0)
    if report.unreadable or (report.material is not None and report.certificate_ends > wall):
        return report
    problem = f"{_BOOTSTRAP}: {config.bootstrap_kubeconfig}: {_ASKED}"
    if report.problems and not report.absent:
        problem = f"{report.problems[0]}; a start asks for a certificate with {_BOOTSTRAP}"
    return replace(report, problems=(problem,), material=None, certificate_ends=0.0, awaited=True)


def resolve_requesting(config: EffectiveConfig, wall: float, *, bootstrap_first: bool) -> KubeconfigReport:
    """Resolve the credentials for requesting a certificate while there is none of our own. Blocks. `bootstrap_first`:
    the credentials of the kubeconfig are known to be invalid."""
    if not config.bootstrap_kubeconfig:
        return resolve_in_child(config.kubeconfig)
    if not bootstrap_first:
        report = resolve_in_child(config.kubeconfig, timeout=0)
        if report.material is not None and report.certificate_ends > wall:
            return report
    return resolve_in_child(config.bootstrap_kubeconfig, flag=_BOOTSTRAP)


def write_kubeconfig(config: EffectiveConfig, bootstrap: KubeconfigReport) -> None:
    """Write the kubeconfig that names the managed certificate, there or not. Raises OSError."""
    path = Path(config.kubeconfig)
    directory = str(Path(config.bootstrap_kubeconfig).absolute().parent)
    document = written_kubeconfig(bootstrap.cluster, directory, str(client_store(config).current))
    make_directory(path.parent)
    write_atomically(path, yaml.safe_dump(document, sort_keys=False).encode(), 0o600)
