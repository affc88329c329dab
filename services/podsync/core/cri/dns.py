"""Builds the name resolution of a pod (pods.md 12.1-12.3): its resolv.conf as a CRI DNSConfig, and warnings.
The facts have the text of the host's file; there is no I/O.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from services.podsync.core.cri.config_errors import SandboxConfigError
from services.podsync.core.node.node_facts import NodeFacts
from shared.cri.interface import Message
from shared.model.objects import Object, describe, namespace

MAX_NAMESERVERS = 3
MAX_SEARCHES = 32
MAX_SEARCH_CHARACTERS = 253  # of one search domain
MAX_SEARCH_LINE_CHARACTERS = 2048
CLUSTER_SEARCHES = 3  # of a pod's namespace, of Services, of the domain
_CLUSTER_OPTIONS = ("ndots:5",)
_MISSING_CLUSTER_DNS = (
    'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. '
    'Falling back to "Default" policy.'
)


class DnsWarning(Struct, frozen=True, kw_only=True):
    """Has a Warning event for the pod, or for the node."""

    reason: str
    message: str
    on_node: bool = False


class PodDns(Struct, frozen=True, kw_only=True):
    """Has a CRI DNSConfig, and the warnings that are recorded each time it is built."""

    config: Message
    warnings: tuple[DnsWarning, ...] = ()


class _Resolver(Struct, frozen=True, kw_only=True):
    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = field(default=())


def pod_dns(pod: Object, facts: NodeFacts) -> PodDns:
    """Return the pod's name resolution. Raises SandboxConfigError where the host's file cannot be read."""
    spec = pod.get("spec") or {}
    host = _host_resolver(facts)
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    of_host = policy == "Default" or (policy == "ClusterFirst" and bool(spec.get("hostNetwork")))
    warnings: list[DnsWarning] = []
    if policy == "None":
        resolver = _Resolver()
    elif not of_host and facts.cluster_dns:
        searches = _cluster_searches(pod, facts.cluster_domain, host.searches)
        resolver = _Resolver(servers=facts.cluster_dns, searches=searches, options=_CLUSTER_OPTIONS)
    else:
        if not of_host:
            on_pod = f'pod: "{describe(pod)}". {_MISSING_CLUSTER_DNS}'
            warnings.append(DnsWarning(reason="MissingClusterDNS", message=_MISSING_CLUSTER_DNS, on_node=True))
            warnings.append(DnsWarning(reason="MissingClusterDNS", message=on_pod))
        resolver = host if facts.resolv_conf is not None else _loopback(facts)
    resolver = _merged(resolver, spec.get("dnsConfig") or {})
    resolver, exceeded = _within_limits(resolver)
    warnings += exceeded
    config = {"servers": resolver.servers, "searches": resolver.searches, "options": resolver.options}
    return PodDns(config={key: list(value) for key, value in config.items() if value}, warnings=tuple(warnings))


def resolv_conf_warnings(facts: NodeFacts, path: str) -> tuple[str, ...]:
    """Return warnings about what pods do not get of the node's file at `path`, or why it cannot be used. The cluster's
    three searches come before those of the file."""
    if not path:
        return ()
    try:
        searches = _host_resolver(facts).searches
    except SandboxConfigError as error:
        return (error.message,)
    most = MAX_SEARCHES - CLUSTER_SEARCHES
    warnings = []
    if len(searches) > most:
        warnings.append(f"Resolv.conf file '{path}' contains search line consisting of more than {most} domains!")
    if any(len(search) > MAX_SEARCH_CHARACTERS for search in searches):
        warnings.append(
            f'Resolv.conf file "{path}" contains a search path which length is more than allowed '
            f"{MAX_SEARCH_CHARACTERS} chars!"
        )
    if len(" ".join(searches)) > MAX_SEARCH_LINE_CHARACTERS:
        warnings.append(
            f"Resolv.conf file '{path}' contains search line which length is more than allowed "
            f"{MAX_SEARCH_LINE_CHARACTERS} chars!"
        )
    return tuple(warnings)


def _host_resolver(facts: NodeFacts) -> _Resolver:
    if facts.resolv_conf_error:
        raise SandboxConfigError(facts.resolv_conf_error)
    return _parsed(facts.resolv_conf or "")


def _parsed(text: str) -> _Resolver:
    """Parse resolv.conf as the kubelet does: only `#` begins a comment, the last search line counts, and domain lines
    are ignored. Raises SandboxConfigError."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        match words[0]:
            case "nameserver":
                if len(words) < 2:
                    raise SandboxConfigError("nameserver list is empty ")
                servers.append(words[1])
            case "search":
                searches = tuple(word.removesuffix(".") for word in words[1:] if word != ".")
            case "options":
                options = _by_name((*options, *words[1:]))
    return _Resolver(servers=tuple(servers), searches=searches, options=options)


def _loopback(facts: NodeFacts) -> _Resolver:
    servers = dict.fromkeys("::1" if ":" in ip else "127.0.0.1" for ip in facts.node_ips)
    return _Resolver(servers=tuple(servers), searches=(".",))


def _cluster_searches(pod: Object, domain: str, host: Sequence[str]) -> tuple[str, ...]:
    if not domain:
        return tuple(host)
    return _unique((f"{namespace(pod)}.svc.{domain}", f"svc.{domain}", domain, *host))


def _merged(resolver: _Resolver, wanted: Object) -> _Resolver:
    options = (
        f"{option['name']}:{option['value']}" if option.get("value") else option.get("name", "")
        for option in wanted.get("options") or ()
    )
    return _Resolver(
        servers=_unique((*resolver.servers, *(wanted.get("nameservers") or ()))),
        searches=_unique((*resolver.searches, *(wanted.get("searches") or ()))),
        options=_by_name((*resolver.options, *options)),
    )


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


def _by_name(options: Iterable[str]) -> tuple[str, ...]:
    """Return one option of each name, with the last value."""
    return tuple({option.partition(":")[0]: option for option in options}.values())


def _within_limits(resolver: _Resolver) -> tuple[_Resolver, list[DnsWarning]]:
    """Return the resolver within the limits of C libraries, and warnings about what it omits."""
    warnings: list[DnsWarning] = []
    servers = resolver.servers[:MAX_NAMESERVERS]
    if servers != resolver.servers:
        warnings.append(_exceeded("Nameserver limits were exceeded, some nameservers", "nameserver", servers))
    searches = tuple(search for search in resolver.searches[:MAX_SEARCHES] if len(search) <= MAX_SEARCH_CHARACTERS)
    while len(" ".join(searches)) > MAX_SEARCH_LINE_CHARACTERS:
        searches = searches[:-1]
    if searches != resolver.searches:
        warnings.append(_exceeded("Search Line limits were exceeded, some search paths", "search", searches))
    return _Resolver(servers=servers, searches=searches, options=resolver.options), warnings


def _exceeded(what: str, line: str, applied: Sequence[str]) -> DnsWarning:
    message = f"{what} have been omitted, the applied {line} line is: {' '.join(applied)}"
    return DnsWarning(reason="DNSConfigForming", message=message)
