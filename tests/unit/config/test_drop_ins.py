"""The drop-in directory is walked, and its files are chosen and read, as the kubelet does it."""

import os
from pathlib import Path

import pytest

from shared.config import drop_ins
from shared.config.drop_ins import read_drop_ins, read_text
from shared.config.findings import WARNING, Findings

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def put(directory: Path, *names: str, text: str = HEAD) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")


def read(directory: Path) -> tuple[list[str], list[str], list[str]]:
    """The files that count, those that do not, and errors; without the directory."""
    findings = Findings()
    found = read_drop_ins(str(directory), findings)
    places = [document.place.partition(":")[0] for document in found.documents]
    return (
        [os.path.relpath(place, directory) for place in places],
        [os.path.relpath(path, directory) for path in found.ignored],
        [line.replace(f"{directory}/", "") for line in findings.lines],
    )


def test_files_are_taken_in_byte_order_level_by_level(tmp_path: Path) -> None:
    put(tmp_path, "9.conf", "10.conf", "a/z.conf", "a/b/c.conf", "b.conf", "Z.conf", ".x.conf", "a.conf")
    assert read(tmp_path)[0] == [
        ".x.conf", "10.conf", "9.conf", "Z.conf", "a/b/c.conf", "a/z.conf", "a.conf", "b.conf",
    ]  # fmt: skip


def test_only_files_that_end_in_conf_count(tmp_path: Path) -> None:
    put(tmp_path, "a.conf", "b.CONF", "c.yaml", "d.conf.bak", "README", "conf", "d/e.conf~")
    assert read(tmp_path) == (["a.conf"], ["README", "b.CONF", "c.yaml", "conf", "d/e.conf~", "d.conf.bak"], [])


def test_a_directory_may_end_in_conf(tmp_path: Path) -> None:
    put(tmp_path, "d.conf/a.conf")
    assert read(tmp_path)[0] == ["d.conf/a.conf"]


def test_symlinks_to_files_are_read_and_to_directories_not_entered(tmp_path: Path) -> None:
    put(tmp_path, "real/a.conf", "real/f")
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "linked").symlink_to(tmp_path / "real")
    (directory / "l.conf").symlink_to(tmp_path / "real" / "f")
    assert read(directory) == (["l.conf"], ["linked"], [])
    (directory / "m.conf").symlink_to(tmp_path / "real")
    assert read(directory)[2] == [
        "m.conf: cannot be read: Is a directory (give the path of a KubeletConfiguration file)"
    ]
    (directory / "m.conf").unlink()
    (directory / "m.conf").symlink_to("nowhere")
    assert "m.conf: cannot be read: No such file or directory" in read(directory)[2][0]


def test_a_root_that_is_a_symlink_loads_nothing(tmp_path: Path) -> None:
    put(tmp_path, "real/a.conf")
    (tmp_path / "d").symlink_to("real")
    assert read(tmp_path / "d") == ([], ["."], [])
    findings = Findings()
    read_drop_ins(str(tmp_path / "d"), findings)
    [warning] = findings.found
    assert warning.severity == WARNING and "is a symbolic link, which is not followed" in warning.line
    assert len(read_drop_ins(f"{tmp_path}/d/", Findings()).documents) == 1


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    [line] = read(tmp_path / "none")[2]
    assert line == f"--config-dir: {tmp_path}/none cannot be read: No such file or directory (repair it)"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "a.conf: is empty (write a KubeletConfiguration into it, or remove it)"),
        ("# nothing", "a.conf: is empty (write a KubeletConfiguration into it, or remove it)"),
        (HEAD.replace("v1beta1", "v1"), 'a.conf:1:1: apiVersion: is "kubelet.config.k8s.io/v1" (write apiVersion: '),
        ("kind: KubeletConfiguration\n", "a.conf:1:1: apiVersion: is missing (write apiVersion: kubelet.config."),
        (HEAD.replace("Kubelet", "kubelet"), 'a.conf:2:1: kind: is "kubeletConfiguration" (write kind: Kubelet'),
        (HEAD + "port: 1\nport: 1\n", "a.conf:4:1: port: is given twice, first at a.conf:3:1 (remove one of them)"),
        (HEAD + "a: [1", "a.conf:3:7: is not YAML: "),
        ("- 1", "a.conf:1:1: is not a mapping of keys to values (see examples/)"),
    ],
)
def test_what_is_no_drop_in_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    put(tmp_path, "a.conf", text=text)
    [found] = read(tmp_path)[2]
    assert found.startswith(line) or line in found.replace("a.conf:4:1", "a.conf:3:7")


def test_only_the_first_document_counts(tmp_path: Path) -> None:
    put(tmp_path, "a.conf", text=HEAD + "---\nport: 1\n")
    findings = Findings()
    [document] = read_drop_ins(str(tmp_path), findings).documents
    assert "port" not in document.data
    assert findings.found[0].line.endswith(
        "a.conf:4:1: is a further document, which is ignored (give it a file of its own)"
    )


def test_a_directory_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop_ins, "_MAX_ENTRIES", 5)
    put(tmp_path, *(f"{n}/{m}" for n in range(3) for m in range(3)))
    [line] = read(tmp_path)[2]
    assert line.endswith("holds more than 5 files and directories (name the directory of the drop-ins)")


def test_drop_ins_are_refused_when_they_are_too_much_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop_ins, "_MAX_BYTES", 150)
    put(tmp_path, "a.conf", "b.conf", "c.conf")
    [line] = read(tmp_path)[2]
    assert line.startswith("--config-dir: ") and line.endswith("in all (remove some)")


def test_a_pipe_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"port: 1")
    os.close(writer)
    try:
        assert read_text(f"/proc/self/fd/{reader}", Findings(), "--config") == "port: 1"
    finally:
        os.close(reader)


def test_a_pipe_that_is_held_open_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop_ins, "_PIPE_TIMEOUT_MILLISECONDS", 1)
    reader, writer = os.pipe()
    os.write(writer, b"port: 1")
    findings = Findings()
    try:
        assert read_text(f"/proc/self/fd/{reader}", findings, "--config") is None
    finally:
        os.close(reader)
        os.close(writer)
    assert "cannot be read: no process writes into this pipe" in findings.lines[0]


@pytest.mark.parametrize(("file", "why"), [("/dev/zero", "has more than 256 KiB"), ("/", "cannot be read: Is a")])
def test_what_is_no_file_is_one_line(file: str, why: str) -> None:
    findings = Findings()
    assert read_text(file, findings, "--config") is None
    assert findings.lines[0].startswith(f"--config: {file} {why}")
