"""Logs in to targets of iSCSI by the program iscsiadm, and finds their sessions in /sys (volumes.md 13.5); blocking.
Methods raise OSError.

iscsiadm takes secrets only as arguments, so that `ps` shows them for the moment of a call; no text of ours has one.
"""

import contextlib
import errno
from collections.abc import Iterable
from pathlib import Path

from services.volume.adapters.programs import ProgramResult, run_with_helpers, running_on
from services.volume.adapters.scsi_disks import ScsiDisks, read, wait_until, write
from services.volume.core.specs.iscsi_volume import (
    Attached,
    Chap,
    IscsiDisk,
    Pairs,
    Session,
    interface_settings,
    session_to,
)
from shared.process.crash import crash_point

MAX_CALL_SECONDS = 30.0  # of iscsiadm, which alone tries a portal that does not answer for up to 120 s
DISK_SECONDS = 30.0  # in which a disk appears after a login
_MAX_SHOWN_CHARACTERS = 8000
_SESSION_NOT_FOUND, _SESSION_EXISTS, _NO_RECORDS = 2, 15, 21  # exit statuses of iscsiadm


class IscsiInitiator:
    """The initiator of the machine, whose disks are `disks`."""

    def __init__(self, disks: ScsiDisks) -> None:
        self._disks = disks

    def sessions(self) -> list[Session]:
        """Return every session of the kernel."""
        found = []
        for entry in sorted((self._disks.sys / "class" / "iscsi_session").glob("session*")):
            device = (entry / "device").resolve()
            host = device.parent.name.removeprefix("host")
            if host.isdecimal():
                portals, disks = frozenset(_portals(device)), dict(_disks(device))
                found.append(Session(int(host), read(entry / "targetname"), _iface(entry), portals, disks))
        return found

    def require_ended(self, iqn: str) -> None:
        """Raise OSError while an iscsiadm for the target runs, which an earlier process may have begun."""
        if running_on(Path(iqn), "iscsiadm"):
            raise OSError(errno.EBUSY, f"an earlier iscsiadm for {iqn} has not ended")

    def prepare_interface(self, disk: IscsiDisk) -> None:
        """Make the interface that has the initiator's name of the disk; without such a name look whether there is
        one."""
        shown = _must(
            "read", f"iface {disk.template or disk.iface}", "iface", "-I", disk.template or disk.iface, "-o", "show"
        )
        if not disk.template:
            return
        what, own = f"iface {disk.iface}", ("iface", "-I", disk.iface, "-o")
        wanted = {**dict(interface_settings(shown.output)), "iface.initiatorname": disk.initiator_name}
        if _run(*own, "show").code != 0:
            _must("create", what, *own, "new")
        crash_point("volume.iscsi.interface")
        has = dict(interface_settings(_must("read", what, *own, "show").output))
        for key, value in wanted.items():
            if has.get(key) != value:
                _must("update", what, *own, "update", "-n", key, "-v", value)

    def disk_at(self, disk: IscsiDisk, portal: str, chap: Chap) -> str:
        """Return the name of the disk as it is at this portal, after a login where there is no session yet."""
        session = session_to(portal, disk.iqn, disk.iface, self.sessions())
        if session is None:
            self._log_in(disk, portal, chap)
            session = session_to(portal, disk.iqn, disk.iface, self.sessions())
        if session is None:
            raise OSError(errno.ENXIO, f"could not get SCSI host number for portal {portal} after logging in")
        if disk.lun not in session.disks:
            write(self._disks.sys / "class" / "scsi_host" / f"host{session.host}" / "scan", f"0 0 {disk.lun}")

        def found() -> str:
            now = session_to(portal, disk.iqn, disk.iface, self.sessions())
            name = now.disks.get(disk.lun, "") if now is not None else ""
            return name if name and (self._disks.dev / name).exists() else ""

        if not wait_until(lambda: bool(found()), DISK_SECONDS):
            text = f"no disk with lun {disk.lun} has appeared within {DISK_SECONDS:g} s at portal {portal}"
            raise OSError(errno.ENXIO, f"could not attach disk: {text}")
        return found()

    def _log_in(self, disk: IscsiDisk, portal: str, chap: Chap) -> None:
        discovery = ("discoverydb", "-t", "sendtargets", "-p", portal, "-I", disk.iface)
        node = ("node", "-p", portal, "-T", disk.iqn, "-I", disk.iface)
        where = f"portal {portal}"
        crash_point("volume.iscsi.discovery")
        _run(*discovery, "-o", "new")
        try:
            _set(chap.discovery, discovery, "discoverydb", where)
            offered = _must("sendtargets to", where, *discovery, "--discover").output
        except OSError:
            _run(*discovery, "-o", "delete")
            raise
        crash_point("volume.iscsi.discovered")
        scan = (*node, "-o", "update", "-n", "node.session.scan", "-v", "manual")  # an old iscsiadm does not know it
        if _run(*scan).code == _NO_RECORDS and disk.iqn in offered.split():
            # A discovery replaces no record that is empty, as a power cut may leave it, and does not fail.
            _must("create", f"iscsi node of {where}", *node, "-o", "new")
            _run(*scan)
        _set(chap.session, node, "iscsi node", where)
        crash_point("volume.iscsi.login")
        try:
            _must("log in to", where, *node, "--login", ignored=(_SESSION_EXISTS,))
        except OSError:
            _run(*node, "-o", "delete")
            raise
        crash_point("volume.iscsi.logged_in")
        # The login of a reboot, before the network is there, would hold the boot up.
        _run("node", "-p", portal, "-T", disk.iqn, "-o", "update", "-n", "node.startup", "-v", "manual")

    def log_out(self, disk: Attached, portal: str) -> None:
        """End the session of the portal, and remove what iscsiadm has noted of it; what is absent is no error."""
        node = ("node", "-p", portal, "-T", disk.iqn, "-I", disk.iface)
        _must("log out of", f"portal {portal}", *node, "--logout", ignored=(_NO_RECORDS, _SESSION_NOT_FOUND))
        crash_point("volume.iscsi.logged_out")
        _must("delete", f"iscsi node of portal {portal}", *node, "-o", "delete", ignored=(_NO_RECORDS,))
        crash_point("volume.iscsi.forgotten")

    def remove_interface(self, iface: str) -> None:
        """Remove an interface that was made for a volume; an absent one is no error."""
        if _run("iface", "-I", iface, "-o", "show").code == 0:
            _must("delete", f"iface {iface}", "iface", "-I", iface, "-o", "delete", ignored=(_NO_RECORDS,))


def _portals(session: Path) -> Iterable[str]:
    for connection in session.glob("connection*/iscsi_connection/connection*"):
        for prefix in ("", "persistent_"):
            address, port = read(connection / f"{prefix}address"), read(connection / f"{prefix}port")
            yield f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _disks(session: Path) -> Iterable[tuple[int, str]]:
    for block in session.glob("target*/*:*:*:*/block/*"):
        with contextlib.suppress(ValueError):
            yield int(block.parent.parent.name.rpartition(":")[2]), block.name


def _iface(session: Path) -> str:
    return read(session / "ifacename") or "default"


def _set(settings: Pairs, where: tuple[str, ...], what: str, shown: str) -> None:
    """Change settings, of which no text shows the value."""
    for key, value in settings:
        done = _run(*where, "-o", "update", "-n", key, "-v", value)
        if done.code != 0:
            raise OSError(errno.EIO, f"iscsi: failed to update {what} with {key} to {shown}: exit status {done.code}")


def _must(verb: str, what: str, *arguments: str, ignored: Iterable[int] = ()) -> ProgramResult:
    done = _run(*arguments)
    if done.code != 0 and done.code not in ignored:
        raise OSError(errno.EIO, f"iscsi: failed to {verb} {what}: exit status {done.code}: {done.output[:500]}")
    return done


def _run(*arguments: str) -> ProgramResult:
    return run_with_helpers(
        "iscsiadm", "-m", *arguments, seconds=MAX_CALL_SECONDS, max_characters=_MAX_SHOWN_CHARACTERS
    )
