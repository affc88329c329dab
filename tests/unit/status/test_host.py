"""What is read of the machine, from files as they look on real ones."""

from pathlib import Path

from services.status.adapters.host import assigned_addresses, read_machine

FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 10.1.0.0
        /24 link UNICAST
Local:
  +-- 10.1.0.0/24 2 0 2
     |-- 10.1.0.5
        /32 host LOCAL
     |-- 10.1.0.255
        /32 link BROADCAST
"""


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_the_facts_of_a_machine(tmp_path: Path) -> None:
    write(tmp_path, "etc/machine-id", "\n")
    write(tmp_path, "var/lib/dbus/machine-id", "abc\n")
    write(tmp_path, "proc/device-tree/system-id", "T-1\0")
    write(tmp_path, "proc/sys/kernel/random/boot_id", "b\n")
    write(tmp_path, "usr/lib/os-release", 'NAME=x\nPRETTY_NAME="Some Linux 1"\n')
    write(tmp_path, "proc/meminfo", "MemTotal:  5 kB\nSwapTotal:       2048 kB\n")
    facts = read_machine(tmp_path)
    assert (facts.machine_id, facts.system_uuid, facts.boot_id) == ("abc", "T-1", "b")
    assert (facts.os_image, facts.swap_capacity) == ("Some Linux 1", 2048 * 1024)


def test_a_machine_without_any_fact(tmp_path: Path) -> None:
    facts = read_machine(tmp_path)
    assert (facts.machine_id, facts.os_image, facts.swap_capacity) == ("", "Linux", 0)
    assert assigned_addresses(tmp_path) == frozenset()


def test_the_addresses_of_the_interfaces(tmp_path: Path) -> None:
    write(tmp_path, "proc/net/fib_trie", FIB_TRIE)
    write(tmp_path, "proc/net/if_inet6", "20010db8000000000000000000000001 02 40 00 80     eth0\n")
    assert assigned_addresses(tmp_path) == {"10.1.0.5", "2001:db8::1"}
