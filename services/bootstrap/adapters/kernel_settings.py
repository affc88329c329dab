"""Gives the machine the kernel settings of a kubelet at the start of the agent (node.md 4.8).

With protectKernelDefaults nothing is written: the evaluation of the configuration has refused settings that differ. A
setting that has its value already is not written, so that on a node of a Go kubelet nothing changes.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from shared.agent.places import find_places
from shared.config.effective import EffectiveConfig
from shared.config.gate_releases import enabled
from shared.errors import OperatorError
from shared.host.kernel_settings import (
    KUBELET_SETTINGS,
    SYSCTLS,
    assignments,
    differing_settings,
    in_user_namespace,
    read_kernel_settings,
)

log = logging.getLogger(__name__)

_GATE = "KubeletInUserNamespace"


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="ascii")


def change_kernel_settings(
    config: EffectiveConfig, *, root: Path = Path("/"), write: Callable[[Path, str], None] = _write
) -> None:
    """Change the settings that differ, and log them in one line. Raises OperatorError where one cannot be written, but
    not in a user namespace with the feature gate KubeletInUserNamespace. `root`: the directory that has `proc`."""
    if config.protect_kernel_defaults or config.run_once or find_places().keeps_kernel_settings:
        return
    changed: list[str] = []
    failed: dict[str, int] = {}
    reason = ""
    for setting, value in differing_settings(read_kernel_settings(root)).items():
        try:
            write(root / SYSCTLS / setting, f"{KUBELET_SETTINGS[setting]}\n")
        except OSError as error:
            failed[setting], reason = value, error.strerror or str(error)
        else:
            changed.append(f"{assignments([setting])} (was {value})")
    if changed:
        log.info("kernel settings were changed: %s", ", ".join(changed))
    if not failed:
        return
    what = f"{assignments(failed)} cannot be set: {reason}"
    if in_user_namespace(root) and enabled(config.feature_gates, _GATE):
        log.info("%s; ignored in a user namespace (feature gate %s)", what, _GATE)
        return
    remedy = f"run sysctl -w {assignments(failed)} on the host, or set BULKHEAD_KEEP_KERNEL_SETTINGS=1"
    if in_user_namespace(root):
        remedy = f"enable the feature gate {_GATE}, or set BULKHEAD_KEEP_KERNEL_SETTINGS=1"
    raise OperatorError(what, where="/proc/sys", remedy=remedy)
