"""A machine that is storage and node: Linux's own iSCSI target, in configfs, and open-iscsi with multipath-tools."""

from tests.machine.machine import Machine

IQN = "iqn.2026-11.com.example:disk"
CHAP_IQN = "iqn.2026-11.com.example:chap"
CHAP = {
    "discovery.sendtargets.auth.username": "finder",
    "discovery.sendtargets.auth.password": "finders-keepers-1",
    "node.session.auth.username": "user",
    "node.session.auth.password": "correct-horse-1",
    "node.session.auth.username_in": "storage",
    "node.session.auth.password_in": "battery-staple-1",
}
IMAGE, CHAP_IMAGE = "/srv/disk.img", "/srv/chap.img"
_SCRIPT = """\
#!/bin/sh
set -e
modprobe -a target_core_mod target_core_file iscsi_target_mod
cd /sys/kernel/config/target
mkdir -p iscsi
offer() { # name, serial number, whether CHAP is needed, portals
    disk=core/fileio_0/$1 group=iscsi/iqn.2026-11.com.example:$1/tpgt_1
    [ -e /srv/$1.img ] || truncate -s 128M /srv/$1.img
    mkdir -p $disk
    echo fd_dev_name=/srv/$1.img,fd_dev_size=134217728 > $disk/control
    echo 1 > $disk/enable
    echo $2 > $disk/wwn/vpd_unit_serial
    mkdir -p $group/lun/lun_0
    ln -s $PWD/$disk $group/lun/lun_0/disk
    echo $3 > $group/attrib/authentication
    echo 0 > $group/attrib/demo_mode_write_protect
    echo 1 > $group/attrib/generate_node_acls
    echo 1 > $group/attrib/cache_dynamic_acls
    shift 3
    for portal; do mkdir $group/np/$portal; done
    echo 1 > $group/enable
}
offer disk 1de0a6c2-0001-4000-8000-5c0ffee00001 0 PORTALS
offer chap 1de0a6c2-0002-4000-8000-5c0ffee00002 1 PORTAL
auth=iscsi/iqn.2026-11.com.example:chap/tpgt_1/auth
printf user > $auth/userid
printf correct-horse-1 > $auth/password
printf storage > $auth/userid_mutual
printf battery-staple-1 > $auth/password_mutual
printf finder > iscsi/discovery_auth/userid
printf finders-keepers-1 > iscsi/discovery_auth/password
"""
_UNIT = """\
[Unit]
Before=iscsid.service bulkhead.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/offer-disks
[Install]
WantedBy=multi-user.target
"""
_MULTIPATH = "defaults {\n  find_multipaths yes\n}\n"
_SYSTEM = "/sys/kernel/config/target/iscsi"


def portals(machine: Machine) -> tuple[str, str]:
    """Both portals of the target; only the first one offers the target that asks for CHAP."""
    return f"{machine.ip}:3260", "127.0.0.1:3260"


def offer_disks(machine: Machine) -> None:
    """Let the machine offer one disk by two portals and one with CHAP, and be an initiator, now and after each boot."""
    first, second = portals(machine)
    script = _SCRIPT.replace("PORTALS", f"{first} {second}").replace("PORTAL", first)
    machine.write("/usr/local/sbin/offer-disks", script, "0755")
    machine.write("/etc/systemd/system/offer-disks.service", _UNIT)
    machine.write("/etc/multipath.conf", _MULTIPATH)
    machine.must("systemctl", "daemon-reload")
    machine.must("systemctl", "disable", "--now", "rtslib-fb-targetctl")  # it would remove what it does not know
    machine.must("systemctl", "enable", "--now", "offer-disks", "iscsid")
    machine.must("systemctl", "restart", "multipathd")
    machine.must("sync")


def ask_for_chap_at_discovery(machine: Machine, *, asked: bool) -> None:
    """Let every discovery need CHAP, or none."""
    machine.must("sh", "-c", f"echo {asked:d} > {_SYSTEM}/discovery_auth/enforce_discovery_auth")


def sessions(machine: Machine) -> list[str]:
    """The sessions as iscsiadm shows them, without the number: portal and name of the target."""
    return _portals_and_targets(machine.call("iscsiadm", "-m", "session").stdout.replace("tcp: [", "["), 1)


def records(machine: Machine) -> list[str]:
    """What iscsiadm has noted of targets: portal and name."""
    return _portals_and_targets(machine.call("iscsiadm", "-m", "node").stdout, 0)


def empty_records(machine: Machine) -> None:
    """Leave a record of each portal as a power cut does that comes before its content is on the disk."""
    for portal in portals(machine):
        machine.write(f"/etc/iscsi/nodes/{IQN}/{portal.replace(':', ',')},1/default", "", "0600")


def _portals_and_targets(shown: str, at: int) -> list[str]:
    rows = [line.split() for line in shown.splitlines()]
    return sorted(f"{row[at].partition(',')[0]} {row[at + 1]}" for row in rows if len(row) > at + 1)


def disks(machine: Machine) -> list[str]:
    """The SCSI disks and the devices of device mapper that the kernel has."""
    return machine.must("sh", "-c", "ls /sys/block | grep -E '^(sd|dm)' || true").split()
