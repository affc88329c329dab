"""The settings that only flags can give: names, places, labels, addresses (config.md 1.1, 3.8). Pure."""

import posixpath
from typing import Any

from shared.agent.places import AgentPaths
from shared.config.findings import WARNING, Findings
from shared.config.node_settings import node_ips, node_labels
from shared.config.settings import absolute, seconds


def own_settings(own: dict[str, Any], places: AgentPaths, hostname: str, findings: Findings) -> dict[str, Any]:
    """EffectiveConfig's fields that come from KubeletFlags; `own` are those given, by name."""
    node_name = (own.get("hostname-override") or hostname).strip().lower()
    if not node_name or len(node_name) > 253 or any(c.isspace() or c in "/%" for c in node_name):
        findings.add("", f'node name "{node_name}" cannot be used', "give another", place="--hostname-override")
    provider = own.get("cloud-provider", "")
    if provider not in ("", "external"):
        findings.add("", f'is "{provider}", must be empty or external', "leave it out", place="--cloud-provider")
    ips, remarks = node_ips(own.get("node-ip", ""), findings)
    for remark in remarks:
        findings.add("", remark.removeprefix("--node-ip: "), place="--node-ip", severity=WARNING)
    run_dir = posixpath.abspath(own.get("run-dir") or places.run_dir)
    if run_dir != places.run_dir:
        remedy = f"set BULKHEAD_RUN_DIR={run_dir} for supervisord, or leave out the flag"
        findings.add("", f"is {run_dir}, but the services look in {places.run_dir}", remedy, place="--run-dir")
    root = own.get("root-dir", places.root_dir)
    if not root or posixpath.normpath(root) != root:
        findings.add("", f'is "{root}", must be a path in its shortest form', "no //, ., .. or final /", "--root-dir")
    if own.get("exit-on-lock-contention") and not own.get("lock-file"):
        what = "needs a lock file to watch"
        findings.add("", what, "give --lock-file too, or leave it out", place="--exit-on-lock-contention")
    kubeconfig, bootstrap = own.get("kubeconfig", ""), own.get("bootstrap-kubeconfig", "")
    if bootstrap and not kubeconfig:
        what = "is ignored without --kubeconfig: the node runs alone"
        findings.add("", what, "give --kubeconfig too", place="--bootstrap-kubeconfig", severity=WARNING)
    page_port = own.get("node-page-port", 0)
    if not 0 <= page_port <= 65535:
        findings.add("", f"is {page_port}, must be between 0 and 65535", "such as 10247", place="--node-page-port")
    return {
        "node_name": node_name,
        "root_dir": posixpath.abspath(root),
        "run_dir": run_dir,
        "log_dir": posixpath.abspath(own.get("log-dir") or places.log_dir),
        "cert_dir": posixpath.abspath(own.get("cert-dir") or places.cert_dir),
        "kubeconfig": absolute(kubeconfig),
        "bootstrap_kubeconfig": absolute(bootstrap) if kubeconfig else "",
        "config_file": absolute(own.get("config", "")),
        "config_dir": absolute(own.get("config-dir", "")),
        "dynamic_config_dir": absolute(own.get("dynamic-config-dir", "")),
        "run_once_output": own.get("output", "text"),
        "reload_config": bool(own.get("reload-config")),
        "node_labels": node_labels(own.get("node-labels") or {}, findings),
        "node_ips": ips,
        "external_cloud_provider": provider == "external",
        "node_page_port": page_port,
        "lock_file": absolute(own.get("lock-file", "")),
        "minimum_container_ttl": seconds(own.get("minimum-container-ttl-duration", 0)),
        "maximum_dead_containers_per_container": own.get("maximum-dead-containers-per-container", 1),
        "runtime_cgroups": own.get("runtime-cgroups", ""),
        "maximum_dead_containers": own.get("maximum-dead-containers", -1),
        "exit_on_lock_contention": bool(own.get("exit-on-lock-contention")),
    }
