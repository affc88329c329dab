"""The file in which bootstrap publishes where every service is found."""

from msgspec import Struct


class Manifest(Struct, frozen=True, kw_only=True):
    """Content of `<run dir>/manifest.json`."""

    protocol: str  # version of PROTOCOL.md, `<major>.<minor>`
    run_dir: str  # absolute path
    addresses: dict[str, dict[str, str]]  # service -> `{"pub": address, "req": address}`
    config_file: str  # absolute path of the effective configuration
    embedded_containerd: bool  # the agent runs an embedded containerd
