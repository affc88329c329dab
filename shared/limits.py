"""Process limits the kubelet sets for itself (reference config.md 5.8). What we may not do is a warning."""

import logging
import resource
from pathlib import Path

log = logging.getLogger(__name__)


def protect_process(oom_score_adj: int, max_open_files: int) -> None:
    """Set our OOM score and RLIMIT_NOFILE; without CAP_SYS_RESOURCE go as far as allowed."""
    try:
        Path("/proc/self/oom_score_adj").write_text(str(oom_score_adj), encoding="ascii")
    except OSError as error:
        log.warning("oom_score_adj stays as it is: %s (needs CAP_SYS_RESOURCE)", error.strerror)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_open_files, max_open_files))
    except (OSError, ValueError):
        wanted = max_open_files if hard == resource.RLIM_INFINITY else min(hard, max_open_files)
        log.warning("maxOpenFiles %d is not allowed here: using %d (needs CAP_SYS_RESOURCE)", max_open_files, wanted)
        if wanted > soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
