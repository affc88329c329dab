"""The unit and the drop-in that kubeadm's packages install, to be changed in paths only, and what systemd makes of it.

Interprets the few directives these two use: Environment=, EnvironmentFile=-, a reset ExecStart=, and `$NAME` as a word
of its own, which is split at white space and vanishes when empty.
"""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

UNIT = """\
[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""

DROP_IN = """\
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""  # noqa: E501

_READ = {"Environment", "EnvironmentFile", "ExecStart"}
_UNREAD = {"Description", "Documentation", "Wants", "After", "Restart", "StartLimitInterval", "RestartSec", "WantedBy"}


def moved(text: str, places: Mapping[str, str]) -> str:
    """Return the text with each path that is a key replaced, the longer ones first."""
    for path in sorted(places, key=len, reverse=True):
        text = text.replace(path, places[path])
    return text


def start_of(*texts: str) -> tuple[list[str], dict[str, str]]:
    """Return argv and the variables with which a unit and its drop-ins start. Raises AssertionError for what is not
    understood."""
    environment: dict[str, str] = {}
    files: list[str] = []
    command = ""
    for line in "\n".join(texts).splitlines():
        name, found, value = line.partition("=")
        if not found or line.startswith("#"):
            assert not line.strip() or line.startswith(("[", "#")), line
            continue
        assert name in _READ | _UNREAD, f"a directive this does not know: {line}"
        if name == "Environment":
            environment.update(_assignment(word) for word in shlex.split(value))
        elif name == "EnvironmentFile":
            files.append(value)
        elif name == "ExecStart":
            assert not (command and value), "a second command without a reset"
            command = value
    for file in files:  # they win over Environment=, whatever the order
        environment |= _read(file)
    return _words(command, environment), environment


def _words(command: str, environment: Mapping[str, str]) -> list[str]:
    words: list[str] = []
    for word in shlex.split(command):
        name = re.fullmatch(r"\$(\w+)", word)
        words += shlex.split(environment.get(name.group(1), "")) if name else [word]
    return words


def _read(file: str) -> dict[str, str]:
    path = Path(file.removeprefix("-"))
    if file.startswith("-") and not path.exists():
        return {}
    lines = (line.strip() for line in path.read_text().splitlines())
    return dict(_assignment("".join(shlex.split(line))) for line in lines if line and not line.startswith(("#", ";")))


def _assignment(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def whole_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a unit with the few that systemd always sets."""
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environment}
