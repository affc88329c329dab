"""Writes the files of the embedded containerd: its configuration, which depends on its version, and its pod network.

bootstrap writes them at its start and at a reload, the keeper before it starts a containerd: the program may have been
replaced since by one that reads another version of the configuration.
"""

import logging
from pathlib import Path

from services.bootstrap.adapters import containerd_host
from services.bootstrap.adapters.containerd_labels import label_directories
from services.bootstrap.core.containerd_config import render_config, render_network, snapshotter_of
from shared.config.effective import EffectiveConfig
from shared.files.atomic import write_atomically
from shared.model.frozen_copy import replace

log = logging.getLogger(__name__)


def write_containerd_files(config: EffectiveConfig) -> None:
    """Write config.toml and the CNI list, and make the directories that they name. Raises OSError."""
    embedded = config.embedded_containerd
    assert embedded is not None
    facts = containerd_host.look(embedded)
    for directory, mode in ((embedded.root, 0o711), (embedded.state, 0o711), (embedded.cni_conf_dir, 0o700)):
        Path(directory).mkdir(parents=True, exist_ok=True, mode=mode)
    if facts.has_selinux and not label_directories(Path(embedded.root), snapshotter_of(facts)):
        facts = replace(facts, has_selinux=False)
    Path(embedded.config_file).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = render_config(embedded, facts, systemd_cgroup=config.cgroup_driver == "systemd")
    write_atomically(Path(embedded.config_file), text.encode())
    network = render_network(embedded, facts)
    write_atomically(Path(embedded.cni_conf_dir) / "10-bulkhead.conflist", network.encode())
    if facts.masquerading_failure:
        log.warning("%s: pods reach this node only, and host ports do not work", facts.masquerading_failure)
