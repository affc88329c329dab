#!/usr/bin/env -S python3 -IS
"""A double of iscsiadm 2.1.8, whose exit statuses and outputs are recorded from the real one. In the directory
ISCSI_MACHINE, `targets.json` has the targets (portal -> iqn, disks by LUN, CHAP), a login makes what the kernel makes
in /sys and /dev, and `calls` gets each call. Tests call `main` also without a process."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

SHOWN = (
    "iface.net_ifacename = <empty>", "iface.transport_name = tcp", "iface.initiatorname = <empty>", "iface.mtu = 9000",
)  # fmt: skip


def main(words: list[str], root: Path) -> int:
    stored = root / "database.json"
    with (root / "calls").open("a") as calls:
        calls.write(f"{' '.join(words)}\n")
    flag = words[-1] if words[-1].startswith("--") else ""
    pairs = words[:-1] if flag else words
    options = dict(zip(pairs[::2], pairs[1::2], strict=True))
    mode, verb = options["-m"], flag or options["-o"]
    database = json.loads(stored.read_text()) if stored.exists() else {"iface": {}, "discoverydb": {}, "node": {}}
    targets = json.loads((root / "targets.json").read_text())
    code = {"iface": iface, "discoverydb": discoverydb, "node": node}[mode](root, verb, options, database, targets)
    temporary = stored.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(database))
    temporary.rename(stored)
    return code


def iface(root: Path, verb: str, options: dict[str, str], database: Any, targets: Any) -> int:
    name, known = options["-I"], database["iface"]
    if verb == "new":
        known[name] = {}
        print(f"New interface {name} added")
        return 0
    if name != "default" and name not in known:
        print(f"iSCSI ERROR: Failed to open /etc/iscsi/ifaces/{name} using read mode: 2 No such file or directory")
        return 7 if verb == "delete" else 6
    if verb == "show":
        values = dict(line.split(" = ") for line in SHOWN) if name == "default" else {**known[name]}
        print("# BEGIN RECORD 2.1.8", f"iface.iscsi_ifacename = {name}", sep="\n")
        print(*(f"{key} = {value}" for key, value in values.items()), "# END RECORD", sep="\n")
    elif verb == "update":
        known[name][options["-n"]] = options["-v"]
    else:
        del known[name]
    return 0


def discoverydb(root: Path, verb: str, options: dict[str, str], database: Any, targets: Any) -> int:
    portal, known = options["-p"], database["discoverydb"]
    if verb == "new":
        known.setdefault(portal, {})
        return 0
    if portal not in known:
        print(f"iscsiadm: Discovery record [{portal}] not found.")
        return 6
    if verb == "update":
        known[portal][options["-n"]] = options["-v"]
        return 0
    if verb == "delete":
        del known[portal]
        return 0
    target = targets.get(portal)
    if target is None:
        print(f"iscsiadm: cannot make connection to {portal.rpartition(':')[0]}: Connection refused")
        print("iscsiadm: Could not perform SendTargets discovery: iSCSI PDU timed out")
        return 11
    if not matches(target.get("discovery"), known[portal], "discovery.sendtargets.auth"):
        print("iscsiadm: discovery login to it rejected: initiator failed authorization")
        return 24
    for offered, other in targets.items():
        if other["iqn"] == target["iqn"]:
            name = key(offered, other["iqn"], options["-I"])
            if name in database.get("empty", ()):
                print(f"iscsiadm: Could not add/update [tcp:[hw=,ip=,net_if=,iscsi_if={options['-I']}] {name}]")
            else:
                database["node"].setdefault(name, {})
            print(f"{offered},1 {other['iqn']}")
    return 0


def node(root: Path, verb: str, options: dict[str, str], database: Any, targets: Any) -> int:
    portal, iqn, known = options["-p"], options["-T"], database["node"]
    records = [name for name in known if name == key(portal, iqn, options.get("-I", name.split()[-1]))]
    sessions = [name for name in records if (root / "sys/class/iscsi_session" / session_name(name)).exists()]
    if verb == "--logout":
        if not sessions:
            print("iscsiadm: No matching sessions found")
            return 21
        for name in sessions:
            log_out(root, name)
        return 0
    if verb == "new":
        known[key(portal, iqn, options["-I"])] = {}
        return 0
    if not records:
        print("iscsiadm: No records found")
        return 21
    for name in records:
        if verb == "update":
            known[name][options["-n"]] = options["-v"]
        elif verb == "delete":
            del known[name]
        elif name in sessions:
            print("iscsiadm: default: 1 session requested, but 1 already present.")
            return 15
        else:
            target = targets.get(portal)
            if target is None:
                print("iscsiadm: Could not login to it. initiator reported error (8 - connection timed out)")
                return 8
            if not matches(target.get("session"), known[name], "node.session.auth"):
                print("iscsiadm: initiator reported error (24 - iSCSI login failed due to authorization failure)")
                return 24
            log_in(root, name, portal, iqn, options["-I"], target)
    return 0


def key(portal: str, iqn: str, interface: str) -> str:
    return f"{portal} {iqn} {interface}"


def session_name(record: str) -> str:
    return f"session{sum(record.encode()) % 1000}"


def matches(wanted: dict[str, str] | None, has: dict[str, str], prefix: str) -> bool:
    return wanted is None or (
        has.get(f"{prefix}.authmethod") == "CHAP" and {name: has.get(f"{prefix}.{name}") for name in wanted} == wanted
    )


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def log_in(root: Path, record: str, portal: str, iqn: str, interface: str, target: Any) -> None:
    name = session_name(record)
    number = name.removeprefix("session")
    device = root / f"sys/devices/platform/host{number}/{name}"
    address, _, port = portal.rpartition(":")
    connection = device / f"connection{number}:0/iscsi_connection/connection{number}:0"
    write(connection / "persistent_address", address.strip("[]"))
    write(connection / "persistent_port", port)
    write(root / f"sys/class/scsi_host/host{number}/scan")
    for lun, disk in target["luns"].items():
        write(root / "sys/block" / disk / "device/delete")
        (device / f"target{number}:0:0/{number}:0:0:{lun}/block/{disk}").mkdir(parents=True, exist_ok=True)
        (root / "dev").mkdir(exist_ok=True)
        if not os.path.lexists(root / "dev" / disk):
            (root / "dev" / disk).symlink_to(f"/dev/{disk}")
    entry = root / "sys/class/iscsi_session" / name
    temporary = entry.with_name(f".{name}")
    write(temporary / "targetname", iqn)
    write(temporary / "ifacename", interface)
    (temporary / "device").symlink_to(device)
    temporary.rename(entry)


def log_out(root: Path, record: str) -> None:
    entry = root / "sys/class/iscsi_session" / session_name(record)
    device = (entry / "device").resolve()
    entry.rename(entry.with_name(f".{entry.name}"))
    shutil.rmtree(entry.with_name(f".{entry.name}"))
    for block in device.glob("target*/*/block/*"):
        shutil.rmtree(root / "sys/block" / block.name, ignore_errors=True)
    shutil.rmtree(device)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(os.environ["ISCSI_MACHINE"])))
