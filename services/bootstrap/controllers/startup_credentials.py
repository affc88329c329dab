"""Reads the node's credentials at a start, in a thread beside everything else, and brings them into force.

It blocks, and is called in a thread before there is a bus. It refuses only what an operator has to correct: a plugin
that fails, or a certificate that has to be requested, never delays static pods.
"""

import logging
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from services.bootstrap.adapters.certificate_child import CertificateChild
from services.bootstrap.adapters.certificate_store import make_directory
from services.bootstrap.adapters.credential_files import CredentialFiles
from services.bootstrap.adapters.exec_plugin import FIRST_TIMEOUT_SECONDS
from services.bootstrap.adapters.kubeconfig import KubeconfigReport
from services.bootstrap.adapters.node_credentials import (
    ClientInspection,
    client_store,
    inspect_client,
    resolve_ordinary,
    write_kubeconfig,
)
from services.bootstrap.adapters.resolved_credentials import ProblemError
from services.bootstrap.controllers.certificate_rotation import store_pair
from services.bootstrap.controllers.csr_credentials import REQUESTING
from services.bootstrap.core.client_plan import ClientPlan
from shared.config.effective import EffectiveConfig
from shared.config.findings import ConfigurationRefusedError
from shared.errors import OperatorError
from shared.model.frozen_copy import replace
from shared.process.crash import crash_point

log = logging.getLogger(__name__)


class StartupCredentials:
    """Reads the credentials; `report`, `plan`, `bootstrap` and `rotate_at_once` are the results for the service."""

    def __init__(self, run_dir: Path) -> None:
        self.files = CredentialFiles(run_dir)
        self.report = KubeconfigReport()
        self.plan = ClientPlan.AS_IS
        self.bootstrap: KubeconfigReport | None = None
        self.rotate_at_once = False
        self._inspection: Future[ClientInspection] | None = None

    def begin(self, config: EffectiveConfig) -> None:
        """Start to look, in a thread of its own; nothing is written yet."""
        if config.joins_cluster:
            beside = ThreadPoolExecutor(1, thread_name_prefix="credentials")
            self._inspection = beside.submit(inspect_client, config, time.time(), timeout=FIRST_TIMEOUT_SECONDS)
            beside.shutdown(wait=False)

    def bring_into_force(self, config: EffectiveConfig, kept: EffectiveConfig | None) -> None:
        """Bring the credentials into force. `kept`: the configuration that services may be using.

        Raises ConfigurationRefusedError, OperatorError, OSError.
        """
        if self._inspection is None:
            self.files.remove()
            return
        look, self._inspection = self._inspection.result(), None
        self.files.prepare()
        if look.plan is ClientPlan.AS_IS:  # a kill may have left as whom a certificate was asked for
            shutil.rmtree(self.files.directory.parent / REQUESTING, ignore_errors=True)
        self.report, self.plan, self.bootstrap = look.report, look.plan, look.bootstrap
        if look.refusal is not None:
            self.report = look.refusal
        else:
            self._make_ready(config)
        if self.report.material is not None:
            self.files.put(self.report.material)
            return
        same = kept is not None and kept.kubeconfig == config.kubeconfig
        if not same or self.files.present() is None:
            if not self.report.awaited and (not self.report.not_yet or (kept is not None and not same)):
                raise ConfigurationRefusedError(self.report.problems)
            self.files.remove()  # of an earlier start: perhaps another node's, or for another cluster
        report_not_renewed(self.report, in_force=same and self.files.present() is not None)

    def _make_ready(self, config: EffectiveConfig) -> None:
        """Write the files that rotation needs: the kubeconfig that names the store, and into the store the pair that
        the kubeconfig contained, as kubeadm does."""
        changed = False
        if self.plan is ClientPlan.BOOTSTRAP_ONCE:
            make_directory(Path(config.kubeconfig).parent)  # it is watched
        if config.rotate_certificates:
            client_store(config).recover()
        if self.plan is ClientPlan.BOOTSTRAP_MANAGED and self.bootstrap is not None:
            why = self.report.why_invalid or ("" if self.report.awaited else "; ".join(self.report.problems))
            if why:
                log.info("%s is written again: %s", config.kubeconfig, why)
            write_kubeconfig(config, self.bootstrap)
            crash_point("bootstrap.kubeconfig.written")
            changed = True
        if (inline := self.report.inline) is not None and self.report.material is None:
            child = CertificateChild()
            try:
                found = child.inspect(inline.certificate, inline.key)
                store_pair(client_store(config), child, found, time.time())
            except ProblemError as error:
                remedy = "replace its client certificate"
                raise OperatorError(str(error), where=config.kubeconfig, remedy=remedy) from None
            self.rotate_at_once = changed = True
        if changed:
            ends = self.report.certificate_ends
            self.report = replace(resolve_ordinary(config, time.time()), certificate_ends=ends)


def report_not_renewed(report: KubeconfigReport, *, in_force: bool) -> None:
    """Log why there are no new credentials, and whether there are older ones."""
    outcome = "the credentials in force stay" if in_force else "without credentials until it is good"
    level = logging.INFO if report.awaited else logging.ERROR
    for line in report.problems:
        log.log(level, "%s; %s", line, outcome)
