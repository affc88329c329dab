"""Process limits the kubelet sets for itself (config.md 5.8). What we may not do is a warning."""

import logging
import resource
import time
from pathlib import Path

from shared.log.klog import structured

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1  # until the second and last try
_NEEDS = "needs CAP_SYS_RESOURCE"


def protect_process(oom_score_adj: int, max_open_files: int, level: int = logging.WARNING) -> None:
    """Set our OOM score and RLIMIT_NOFILE; without CAP_SYS_RESOURCE go as far as allowed, and log that at `level`."""
    if problem := set_oom_score(oom_score_adj):
        log.log(level, "%s", structured("Failed to set oom_score_adj", err=problem, oomScoreAdj=oom_score_adj))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_open_files, max_open_files))
    except (OSError, ValueError):
        wanted = max_open_files if hard == resource.RLIM_INFINITY else min(hard, max_open_files)
        what, problem = "Failed to set rlimit on max file handles", f"not allowed ({_NEEDS})"
        log.log(level, "%s", structured(what, err=problem, maxOpenFiles=max_open_files, using=max(wanted, soft)))
        if wanted > soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def set_oom_score(oom_score_adj: int, process: int | str = "self") -> str:
    """Set the OOM score (-1000 to 1000) of a process, in two tries; return why it failed, "" if it is set."""
    file, text = Path(f"/proc/{process}/oom_score_adj"), str(oom_score_adj)
    try:
        if file.read_text(encoding="ascii").strip() == text:
            return ""
        try:
            file.write_text(text, encoding="ascii")
        except PermissionError:
            raise
        except OSError:
            time.sleep(_RETRY_SECONDS)
            file.write_text(text, encoding="ascii")
    except OSError as error:
        return f"{error.strerror} ({_NEEDS})" if isinstance(error, PermissionError) else str(error.strerror)
    return ""
