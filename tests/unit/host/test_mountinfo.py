"""The mount table as the kernel writes it: escapes, propagation, and characters that no user writes on purpose."""

import pytest

from shared.host.cgroup_layout import find_hierarchies
from shared.host.mountinfo import MountPoint, below, containing, parse, references

# Not escaped by the kernel. Python takes some for a blank or for the end of a line; the last is not UTF-8.
ODD = (
    "\r",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\xa0",
    "\u2028",
    "\u2029",
    "\u3000",
    "\udcff",
    " - ",
    "\\",
    "\n",
)


def escaped(path: str) -> str:
    return "".join(f"\\{ord(each):03o}" if each in " \t\n\\" else each for each in path)


def test_the_mount_table_is_read_with_its_escapes_and_propagation() -> None:
    text = (
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "40 27 0:30 / /var/lib/a\\040b rw shared:5 master:1 - tmpfs tmpfs rw\n"
        "41 40 0:31 / /var/lib/a\\040b/x rw - tmpfs tmpfs rw\n"
        "nonsense\n"
    )
    table = parse(text)
    assert table[1] == MountPoint(
        "/var/lib/a b",
        "tmpfs",
        shared=True,
        device="0:30",
        root="/",
        options=frozenset({"rw"}),
        source="tmpfs",
        super_options=frozenset({"rw"}),
    )
    assert below(table, "/var/lib/a b") == ["/var/lib/a b/x", "/var/lib/a b"]
    assert below(table, "/var/lib/a") == []
    assert containing(table, "/var/lib/a b/y") == table[1]
    assert containing(table, "/var/lib/other") == table[0]
    assert containing((), "/x") is None


def test_the_references_of_a_mount_are_the_other_mounts_of_its_directory() -> None:
    lines = (("/", "/global"), ("/", "/pods/a"), ("/sub", "/pods/b"), ("/", "/pods/c"))
    table = parse(
        "".join(f"4{n} 27 7:0 {root} {path} rw - ext4 /dev/loop0 rw\n" for n, (root, path) in enumerate(lines))
    )
    assert references(table, "/global") == ["/pods/a", "/pods/c"]
    assert references(table, "/pods/b") == []
    assert references(table, "/nowhere") == []


def test_a_mount_on_a_path_with_odd_characters_is_one_mount(subtests: pytest.Subtests) -> None:
    for odd in ODD:
        with subtests.test(odd):
            path = f"/pods/a{odd}b"
            text = (
                f"40 27 0:30 / {escaped(path)} rw - tmpfs {escaped(odd)} rw\n"
                "41 27 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
            )
            text = text.encode(errors="surrogateescape").decode(errors="surrogateescape")
            table = parse(text)
            assert [mount.path for mount in table] == [path, "/sys/fs/cgroup"]
            assert below(table, "/pods") == [path]
            assert table[0].source == odd
            assert str(find_hierarchies(text).unified) == "/sys/fs/cgroup"


def test_the_mounts_at_or_under_a_path_are_read_alone(subtests: pytest.Subtests) -> None:
    for odd in ("", *ODD):
        with subtests.test(odd):
            path = f"/pods/a{odd}b"
            points = ("/", "/pods", f"{path}c", path, f"{path}/x{odd}", f"/y{path}", path)
            lines = [f"4{n} 27 0:3{n} / {escaped(point)} rw - tmpfs tmpfs rw\n" for n, point in enumerate(points)]
            lines += [f"50 27 0:40 {escaped(path)} /bound rw - tmpfs {escaped(path)} rw\n"]
            text = "".join(lines).encode(errors="surrogateescape").decode(errors="surrogateescape")
            assert [mount.path for mount in parse(text, path)] == [path, f"{path}/x{odd}", path]
            assert parse(text, "/") == parse(text)
