"""Which credentials the node has, may have and may ask with: kubeconfig, bootstrap kubeconfig and certificate store.

Reads files, through a child, and writes the kubeconfig. Decides by `core.client_plan`. Rules: config.md 5.4.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from services.bootstrap.adapters.certificate_store import CertificateStore, make_directory
from services.bootstrap.adapters.exec_plugin import PLUGIN_TIMEOUT
from services.bootstrap.adapters.kubeconfig import KubeconfigReport, ManagedPair, resolve_in_child
from services.bootstrap.core.client_plan import ClientPlan, plan_client
from services.bootstrap.core.kubeconfig_document import written_kubeconfig
from shared.config.effective import EffectiveConfig
from shared.files.atomic import write_atomically

_BOOTSTRAP = "--bootstrap-kubeconfig"
_ASKED = "there is no valid client certificate yet (a start asks for one; bootstrap's log has the progress)"


@dataclass(frozen=True)
class ClientInspection:
    """What was found. `bootstrap`: of the bootstrap kubeconfig, where the plan needs it."""

    plan: ClientPlan
    report: KubeconfigReport
    bootstrap: KubeconfigReport | None = None

    @property
    def refusal(self) -> KubeconfigReport | None:
        """The report whose problems only an operator can remove."""
        if self.bootstrap is not None:
            return self.bootstrap if self.bootstrap.problems and not self.bootstrap.not_yet else None
        return self.report if self.report.problems and not self.report.awaited else None


def client_store(config: EffectiveConfig) -> CertificateStore:
    """Where the client certificate is."""
    return CertificateStore("kubelet-client", config.cert_dir)


def serving_store(config: EffectiveConfig) -> CertificateStore:
    """Where the serving certificate is, if it is asked for; the configured pair serves until then."""
    return CertificateStore("kubelet-server", config.cert_dir, (config.tls_cert_file, config.tls_private_key_file))


def inspect_client(config: EffectiveConfig, wall: float, *, timeout: int = PLUGIN_TIMEOUT) -> ClientInspection:
    """Look at everything once, in children. Blocks; a plugin gets `timeout` seconds."""
    report = resolve_ordinary(config, wall, timeout=timeout)
    if not config.bootstrap_kubeconfig or report.unreadable:
        plan = plan_client(rotate=config.rotate_certificates, bootstrap_given=False, still_valid=False)
        if report.awaited and report.why_invalid and not report.unreadable:  # there are no credentials to ask with
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
    """Look once, and return why a running agent does not take these credentials; () where it does. Blocks."""
    look = inspect_client(config, wall)
    report = look.refusal or look.report
    return () if report.material is not None or (report.awaited and look.refusal is None) else report.problems


def inspect_bootstrap(config: EffectiveConfig, *, timeout: int = 0) -> KubeconfigReport:
    """The bootstrap kubeconfig. Blocks; a plugin gets `timeout` seconds, and is not run with 0."""
    return resolve_in_child(config.bootstrap_kubeconfig, timeout=timeout, flag=_BOOTSTRAP)


def resolve_ordinary(config: EffectiveConfig, wall: float, *, timeout: int = PLUGIN_TIMEOUT) -> KubeconfigReport:
    """The credentials of all traffic but requests for certificates. Blocks; a plugin gets `timeout` seconds.

    With rotation the managed certificate alone authenticates, and whatever else the kubeconfig's user has is left out.
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
    """The credentials to ask for a certificate with while there is none of our own. Blocks.

    `bootstrap_first`: the kubeconfig's are known to be of no use.
    """
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
