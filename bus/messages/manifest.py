"""The file in which bootstrap publishes where every service is found."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Content of `<run dir>/manifest.json`."""

    protocol: str  # PROTOCOL.md version, "major.minor"
    run_dir: str
    addresses: dict[str, dict[str, str]]  # service -> {"pub": "ipc://…", "req": "ipc://…"}
    config_file: str  # the effective configuration, a file in the run directory
    embedded_containerd: bool
