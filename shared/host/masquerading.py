"""Finds out whether iptables can masquerade on this machine, as the CNI plugins bridge and portmap have it do. Changes
nothing, but that the kernel may load modules: the rule that is tried is in a network namespace that ends with the
program."""

import os
import shutil
import subprocess

_PROGRAM = "iptables"
_RULE = ("--table", "nat", "--append", "POSTROUTING", "--source", "192.0.2.0/24",
         "--match", "comment", "--comment", "bulkhead", "--jump", "MASQUERADE")  # fmt: skip
_TRIED = ("unshare", "--net", "--", _PROGRAM, "--wait", "5", *_RULE)
_MAX_SECONDS = 10.0  # for a try, which takes a tenth of one
_OK, _RESOURCE_PROBLEM = 0, 4  # exit codes; the kind nft has the second one also for all that the kernel refuses
_PASSING = ("lock", "memory", "temporarily", "buffer space")  # words of its reasons that say nothing of the kernel
_MAX_SHOWN_CHARACTERS = 300  # of its error output
_SBIN = ":/usr/sbin:/sbin"


def search_path() -> str:
    """Return the path in which programs of the network are looked for: that of this process and the directories of
    iptables, which a path without root's rights lacks."""
    return (os.environ.get("PATH") or os.defpath) + _SBIN


def masquerading_failure() -> str:
    """Return why iptables cannot masquerade, in one line; "" where it can, and where that cannot be found out, such as
    without root's rights. Blocks for 10 s at most."""
    # In a namespace of its own it needs no lock, and a lock file would be a change.
    environment = {
        **os.environ, "PATH": search_path(), "LC_ALL": "C", "XTABLES_LOCKFILE": os.devnull
    }  # fmt: skip
    if shutil.which(_PROGRAM, path=environment["PATH"]) is None:
        return "iptables is not installed"
    try:
        done = subprocess.run(
            _TRIED, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=environment, timeout=_MAX_SECONDS, check=False, text=True, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stderr.splitlines()
    if done.returncode == _OK or (lines and lines[0].startswith(_TRIED[0])):
        return ""
    if done.returncode == _RESOURCE_PROBLEM and any(word in done.stderr.lower() for word in _PASSING):
        return ""
    # A modprobe that finds no module may have its say first.
    reason = next((line for line in lines if line.startswith(_PROGRAM)), lines[0] if lines else "")
    return f"iptables cannot masquerade: {reason.strip()[:_MAX_SHOWN_CHARACTERS] or f'exit code {done.returncode}'}"
