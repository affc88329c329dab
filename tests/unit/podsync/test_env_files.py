"""Files of environment variables: what they may look like, and that reading one never leads out of the volume."""

import os
from pathlib import Path

import pytest

from services.podsync.adapters.env_files import LARGEST, read_env_files, read_inside
from services.podsync.core.container_mounts import MountedVolume
from services.podsync.core.env_file import EnvFileError, parse_env_file
from services.podsync.core.environment import EnvFile


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("", {}),
        ("\n  \n# comment\n\t# another\n", {}),
        ("A='x'", {"A": "x"}),
        ("A='x'\nB='y'\n", {"A": "x", "B": "y"}),
        ("  A='x'\n", {"A": "x"}),
        ("A='x' \t\nB='y'", {"A": "x", "B": "y"}),
        ("A='x' # why\n", {"A": "x"}),
        ("A=''\n", {"A": ""}),
        ("A=\nB='y'\n", {"A": "", "B": "y"}),
        ("A= 'x'\nB='y'\n", {"A": "", "B": "y"}),
        ("A='one\n# two\n  three='\n", {"A": "one\n# two\n  three="}),
        ("A='$B \"c\" \\n'\n", {"A": '$B "c" \\n'}),
        ("A='x'\nA='y'\n", {"A": "y"}),
        ("A='x'\r\nB='y'\r\n", {"A": "x", "B": "y"}),
        ("a.b-c='x'", {"a.b-c": "x"}),
    ],
)
def test_a_file_of_variables(text: str, variables: dict[str, str]) -> None:
    assert parse_env_file(text) == variables


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("A=x", 1),
        ('A="x"', 1),
        ("A ='x'", 1),
        ("A", 1),
        ("='x'", 1),
        ("A='x'\nB='y", 2),
        ("A='x'y'", 1),
        ("A='x'#y", 1),
        ("A='x' 'y'", 1),
        ("export A='x'", 1),
        ("A='a\nb'\nC=d", 3),
    ],
)
def test_anything_else_is_refused_with_its_line_and_without_its_value(text: str, line: int) -> None:
    with pytest.raises(EnvFileError, match=f"^line {line}: ") as error:
        parse_env_file(text)
    assert "x" not in str(error.value).replace("without", "")


def reading(volume: Path, path: str) -> EnvFile:
    container = {"env": [{"name": "E", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": path, "key": "A"}}}]}
    return read_env_files(container, {"v": MountedVolume(host_path=str(volume))})["v", path]


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    inside = tmp_path / "volume"
    (inside / "d").mkdir(parents=True)
    (inside / "a.env").write_text("A='x'\n")
    (inside / "d" / "b.env").write_text("A='y'\n")
    (tmp_path / "secret").write_text("A='secret'\n")
    return inside


@pytest.mark.parametrize(
    "path", ["a.env", "./a.env", "d/../a.env", "../a.env", "/a.env", "d/../../a.env", "link", "abs"]
)
def test_a_file_is_found_as_if_the_volume_were_everything(volume: Path, path: str) -> None:
    (volume / "link").symlink_to("d/../a.env")
    (volume / "abs").symlink_to("/a.env")
    assert reading(volume, path) == EnvFile({"A": "x"})


@pytest.mark.parametrize("target", ["../secret", "../../secret", "d/../../secret", "/secret"])
def test_no_link_leads_out_of_the_volume(volume: Path, target: str) -> None:
    (volume / "out").symlink_to(target)
    assert reading(volume, "out") == EnvFile({}, missing=True)
    (volume / "out").unlink()
    (volume / "out").symlink_to(volume.parent / "secret")
    assert reading(volume, "out") == EnvFile({}, missing=True)


def test_a_link_to_a_directory_outside_leads_nowhere(volume: Path) -> None:
    (volume / "up").symlink_to("..")
    assert reading(volume, "up/secret").missing
    assert reading(volume, "up/a.env") == EnvFile({"A": "x"})


@pytest.mark.parametrize("path", ["none", "none/a.env", "a.env/b"])
def test_a_file_that_is_not_there_is_missing(volume: Path, path: str) -> None:
    assert reading(volume, path) == EnvFile({}, missing=True)


def test_what_is_no_file_of_variables_is_told_without_details(volume: Path) -> None:
    (volume / "bad").write_text("A=x\n")
    (volume / "bytes").write_bytes(b"A='\xff'\n")
    (volume / "large").write_bytes(b"#" * (LARGEST + 1))
    (volume / "loop").symlink_to("loop")
    os.mkfifo(volume / "pipe")
    for path in ("bad", "bytes", "large", "loop", "pipe", "d", "", "a\0b"):
        assert reading(volume, path) == EnvFile({}, error="couldn't parse env file"), path


def test_a_volume_that_is_not_mounted_has_no_files() -> None:
    container = {"env": [{"name": "E", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "a", "key": "A"}}}]}
    assert read_env_files(container, {}) == {}


def test_nothing_stays_open(volume: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("a.env", "d/b.env", "d/none", "../a.env", "d"):
        try:
            read_inside(volume, path)
        except OSError:
            continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before
