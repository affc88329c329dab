"""Finds and removes the NAT rules that CNI plugins have made for the pods of a network, for masquerading and for host
ports. Each of them has a comment that names the network."""

import os
import subprocess

from shared.host.masquerading import search_path

_LIST = ("iptables", "--wait", "5", "--table", "nat", "--list-rules")
_CHANGE = ("iptables-restore", "--wait", "5", "--noflush")  # all or nothing
_MAX_SECONDS = 30.0  # for each of the two programs
_SHARED = "CNI-HOSTPORT-"  # begins the chains of all pods and networks; every other one of CNI is that of one pod


def address_translation(network: str) -> list[str]:
    """Return the rules of the network's pods as iptables prints them; none where it cannot be asked. Blocks."""
    try:
        listed = _run(_LIST)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line for line in listed.splitlines() if line.startswith("-A ") and f'name: \\"{network}\\"' in line]


def remove_address_translation(network: str) -> int:
    """Remove these rules and the chains of the pods, all or none; return how many rules there were. Blocks.

    Raises OSError, subprocess.SubprocessError.
    """
    rules = address_translation(network)
    if rules:
        _run(_CHANGE, render_removal(rules))
    return len(rules)


def render_removal(rules: list[str]) -> str:
    """Return what iptables-restore reads in order to remove these rules and the chains of pods that they name."""
    named = {word for rule in rules for word in (rule.split()[1], rule.rpartition(" -j ")[2].split()[0])}
    of_pods = {name for name in named if name.startswith("CNI-") and not name.startswith(_SHARED)}
    single = [f"-D{rule.removeprefix('-A')}" for rule in rules if rule.split()[1] not in of_pods]
    chains = sorted(of_pods)
    lines = ["*nat", *single, *(f"-F {chain}" for chain in chains), *(f"-X {chain}" for chain in chains), "COMMIT"]
    return "".join(f"{line}\n" for line in lines)


def _run(command: tuple[str, ...], text: str = "") -> str:
    environment = {**os.environ, "PATH": search_path()}
    return subprocess.run(
        command, input=text, capture_output=True, env=environment, timeout=_MAX_SECONDS, check=True, text=True,
        errors="replace",
    ).stdout  # fmt: skip
