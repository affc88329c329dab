"""Builds a pod's host name, its domain and the text of its /etc/hosts (pods.md 12.4, 12.5)."""

from collections.abc import Sequence

from services.podsync.core.cri.config_errors import ContainerConfigError
from shared.model.objects import Object, name, namespace
from shared.podspec.names import dns_label, dns_subdomain

MAX_HOSTNAME_CHARACTERS = 63
MAX_KERNEL_HOSTNAME_CHARACTERS = 64
_HEADER = "# Kubernetes-managed hosts file.\n"
_HOST_NETWORK_HEADER = "# Kubernetes-managed hosts file (host network).\n"
_ALIASES_HEADER = "\n# Entries added by HostAliases.\n"
_LOCAL = (
    ("127.0.0.1", "localhost"),
    ("::1", "localhost ip6-localhost ip6-loopback"),
    ("fe00::0", "ip6-localnet"),
    ("fe00::0", "ip6-mcastprefix"),
    ("fe00::1", "ip6-allnodes"),
    ("fe00::2", "ip6-allrouters"),
)


class HostnameError(ValueError):
    """The pod cannot have the hostname of its spec; the text is the kubelet's."""


def hostname_and_domain(pod: Object, cluster_domain: str) -> tuple[str, str]:
    """Return the short host name, and its domain ("" for none). Raises HostnameError."""
    spec = pod.get("spec") or {}
    if override := spec.get("hostnameOverride"):
        _check("HostnameOverride", override, "subdomain", dns_subdomain(override))
        return override[:MAX_HOSTNAME_CHARACTERS], ""
    if wanted := spec.get("hostname"):
        _check("Hostname", wanted, "label", dns_label(wanted))
    hostname = wanted or name(pod)
    if len(hostname) > MAX_HOSTNAME_CHARACTERS:
        hostname = hostname[:MAX_HOSTNAME_CHARACTERS].rstrip("-.")
    if not (subdomain := spec.get("subdomain")):
        return hostname, ""
    _check("Subdomain", subdomain, "label", dns_label(subdomain))
    return hostname, f"{subdomain}.{namespace(pod)}.svc.{cluster_domain}"


def _check(field: str, value: str, form: str, wrong: list[str]) -> None:
    if wrong:
        raise HostnameError(f'pod {field} "{value}" is not a valid DNS {form}: {";".join(wrong)}')


def kernel_hostname(pod: Object, cluster_domain: str) -> str:
    """Return the host name of the sandbox, with its domain where the spec requests it. Raises HostnameError."""
    hostname, domain = hostname_and_domain(pod, cluster_domain)
    if not (domain and (pod.get("spec") or {}).get("setHostnameAsFQDN")):
        return hostname
    full = f"{hostname}.{domain}"
    if len(full) > MAX_KERNEL_HOSTNAME_CHARACTERS:
        raise HostnameError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is too long "
            f"({MAX_KERNEL_HOSTNAME_CHARACTERS} characters is the max, {len(full)} characters requested)"
        )
    return full


def hosts_file(pod: Object, pod_ips: Sequence[str], cluster_domain: str, node_hosts: str) -> str:
    """Return the text of `pods/<uid>/etc-hosts`, which each container start writes again. `node_hosts`: the text of the
    node's own file, which hostNetwork pods get. Raises ContainerConfigError."""
    spec = pod.get("spec") or {}
    if spec.get("hostNetwork"):
        return _HOST_NETWORK_HEADER + node_hosts + _aliases(pod)
    try:
        hostname, domain = hostname_and_domain(pod, cluster_domain)
    except HostnameError as error:
        raise ContainerConfigError(str(error)) from error
    names = f"{hostname}.{domain}\t{hostname}" if domain else hostname
    lines = [*_LOCAL, *((ip, names) for ip in pod_ips)]
    return _HEADER + "".join(f"{ip}\t{hosts}\n" for ip, hosts in lines) + _aliases(pod)


def _aliases(pod: Object) -> str:
    aliases = (pod.get("spec") or {}).get("hostAliases") or ()
    lines = "".join(f"{alias.get('ip') or ''}\t" + "\t".join(alias.get("hostnames") or ()) + "\n" for alias in aliases)
    return _ALIASES_HEADER + lines if lines else ""
