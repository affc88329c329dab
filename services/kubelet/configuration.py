"""Forms the supervisord.conf that the executable runs: the packaged one, with this Python, this run directory, this
log.

Pure, except that it finds the packaged file. Only that file defines the services and how they are restarted."""

import configparser
import io
import re
import shlex
import sys
from pathlib import Path

from shared.errors import OperatorError

SUPERVISORD_CONF = "supervisord.conf"  # also written to the run directory, for `supervisorctl -c`
_PYTHON = "%(here)s/.venv/bin/python"
_UNREADABLE = re.compile(r"[\s;#\"'\\]")  # characters that supervisord does not read in a path


def packaged_text() -> str:
    """Return the text of supervisord.conf of the package, or of the checkout. Raise OperatorError if there is none."""
    package = Path(__file__).resolve().parent
    for directory in (package, package.parent.parent):
        try:
            return (directory / SUPERVISORD_CONF).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
    raise OperatorError("is missing", where=str(package / SUPERVISORD_CONF), remedy="install the package again")


def render(text: str, run_dir: Path, log_dir: Path, python: str = sys.executable) -> str:
    """Return the configuration for one agent. Raises OperatorError for a directory whose name it cannot carry."""
    for what, path in (("run directory", run_dir), ("log directory", log_dir)):
        if _UNREADABLE.search(str(path)):
            remedy = "choose a path without spaces, quotes, backslashes, # and ;"
            raise OperatorError("has a character supervisord cannot read", where=f"{what} {str(path)!r}", remedy=remedy)
    conf = configparser.RawConfigParser(inline_comment_prefixes=(";",))
    conf.read_string(text)
    socket, log = _escaped(run_dir / "supervisord.sock"), _escaped(log_dir / "supervisord.log")
    conf.set("unix_http_server", "file", socket)
    conf.set("supervisorctl", "serverurl", f"unix://{socket}")
    conf.set("supervisord", "pidfile", _escaped(run_dir / "supervisord.pid"))
    conf.set("supervisord", "logfile", log)
    # The agent runs as the user of this process; `evaluation` reports one that is not root.
    conf.remove_option("supervisord", "user")
    conf.remove_option("supervisord", "directory")  # relative paths in flags begin where the kubelet was started
    for section in conf.sections():
        if section.startswith("program:"):
            command = conf.get(section, "command").replace(_PYTHON, shlex.quote(_escaped(python)))
            conf.set(section, "command", command)
            conf.remove_option(section, "directory")
            if conf.get(section, "stderr_logfile", fallback="NONE") != "NONE":
                conf.set(section, "stderr_logfile", log)
    buffer = io.StringIO("; Made by kubelet at every start, for supervisorctl -c.\n")
    buffer.seek(0, io.SEEK_END)
    conf.write(buffer)
    return buffer.getvalue()


def _escaped(path: Path | str) -> str:
    return str(path).replace("%", "%%")
