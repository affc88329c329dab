"""The CDI devices of the machine are those of its specification files, and only a file that has changed is read
again."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters import cdi_specifications
from services.volume.adapters.cdi_specifications import MAX_FILE_BYTES, CdiSpecifications


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cdi_specifications, "DIRECTORIES", (str(tmp_path / "etc"), str(tmp_path / "run")))
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def specification(kind: str, *names: str) -> str:
    return json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": [{"name": name} for name in names]})


def test_json_and_yaml_files_of_all_directories_have_devices(directory: Path) -> None:
    (directory / "a.json").write_text(specification("example.com/gpu", "0", "all"))
    other = directory.parent / "etc"
    other.mkdir()
    (other / "b.yaml").write_text("kind: example.com/nic\ndevices:\n- name: eth0\n- name: 7\n")
    (directory / "c.txt").write_text(specification("example.com/gpu", "of another file"))
    assert CdiSpecifications().look() == {
        "example.com/gpu=0",
        "example.com/gpu=all",
        "example.com/nic=eth0",
        "example.com/nic=7",
    }


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "7",
        "{}",
        '{"kind": 7, "devices": [{"name": "a"}]}',
        '{"kind": "e.com/g", "devices": {"name": 1}}',
    ],
)
@pytest.mark.parametrize("name", ["x.json", "x.yaml"])
def test_a_file_that_is_no_specification_has_no_devices(directory: Path, name: str, content: str) -> None:
    (directory / name).write_text(content)
    (directory / "good.json").write_text(specification("example.com/gpu", "0"))
    assert CdiSpecifications().look() == {"example.com/gpu=0"}


def test_a_file_that_is_half_written_has_the_devices_that_it_had_and_one_that_is_gone_has_none(directory: Path) -> None:
    file, specifications = directory / "a.json", CdiSpecifications()
    file.write_text(specification("example.com/gpu", "0"))
    assert specifications.look() == {"example.com/gpu=0"}
    file.write_text('{"kind": "exam')
    assert specifications.look() == {"example.com/gpu=0"}
    file.write_text(specification("example.com/gpu", "1"))
    assert specifications.look() == {"example.com/gpu=1"}
    file.unlink()
    assert specifications.look() == set()


def test_what_is_no_file_or_too_long_does_not_hang_and_hides_no_other(directory: Path) -> None:
    os.mkfifo(directory / "fifo.json")
    (directory / "directory.json").mkdir()
    (directory / "long.json").write_text(" " * (MAX_FILE_BYTES + 1))
    (directory / "dangling.json").symlink_to("nowhere")
    (directory / "good.json").write_text(specification("example.com/gpu", "0"))
    assert CdiSpecifications().look() == {"example.com/gpu=0"}


def test_a_file_is_read_again_only_after_it_has_changed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    parsed = cdi_specifications._parsed

    def note(path: Path) -> Any:
        read.append(path.name)
        return parsed(path)

    monkeypatch.setattr(cdi_specifications, "_parsed", note)
    specifications = CdiSpecifications()
    (directory / "a.json").write_text(specification("example.com/gpu", "0"))
    (directory / "b.json").write_text(specification("example.com/nic", "0"))
    for _ in range(3):
        assert len(specifications.look()) == 2
    new = directory / "new"
    new.write_text(specification("example.com/gpu", "1"))
    new.rename(directory / "a.json")
    assert specifications.look() == {"example.com/gpu=1", "example.com/nic=0"}
    assert read == ["a.json", "b.json", "a.json"]
