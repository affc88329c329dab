"""Says whether the serving certificate has the name that the API server of Kubernetes 1.38 asks for. Only reads."""

from services.cli.preflight.findings import Finding, Section, Severity
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError


def serving_name_findings(config: EffectiveConfig, wall: float) -> list[Finding]:
    """Return a finding for a pair of files, or for the self-signed one. One that the API server issues has the name."""
    if not config.joins_cluster or config.server_tls_bootstrap:
        return []
    from services.cli.agent.certificates import CertificateSource, read_rows

    file = config.tls_cert_file
    try:
        (row,) = read_rows(CertificateSource(certificate="serving", content=file, file=file), wall)
    except OperatorError:
        return []  # the agent makes it, or evaluating the configuration refuses it
    name = f"system:node:{config.node_name}"
    if f"CN={name}" in row.subject.split(","):
        return []
    what = (
        f"the serving certificate is for {row.subject or 'no name'}: an API server of Kubernetes 1.38 that verifies "
        f"certificates of kubelets reads no logs and executes nothing where the name is not CN={name}"
    )
    remedy = "set serverTLSBootstrap, or use a pair with that name"
    return [Finding(section=Section.CLUSTER, severity=Severity.NOTE, what=what, where=file, remedy=remedy)]
