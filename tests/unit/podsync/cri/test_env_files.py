"""Files of environment variables: what they may look like, and that reading one never leads out of the volume."""

import os
from pathlib import Path

import pytest

from services.podsync.adapters.pod import env_files
from services.podsync.adapters.pod.env_files import MAX_FILE_BYTES, MAX_FILES, read_env_files, read_inside
from services.podsync.core.cri.container_mounts import MountedVolume
from services.podsync.core.cri.env_file import EnvFileError, parse_env_file
from services.podsync.core.cri.environment import EnvFile
from shared.model.objects import Object


def test_a_file_of_variables(subtests: pytest.Subtests) -> None:
    for text, variables in [
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
        ("A='x'\nA='y'\n", {"A": "x"}),
        ("C='z'\nA='x'\n", {"A": "x"}),
        ("A='x'\r\nB='y'\r\n", {"A": "x", "B": "y"}),
        ("a.b-c='x'", {"a.b-c": "x"}),
        ("\n \n#\n \t# x\n\tA='x'\n \n# end", {"A": "x"}),
    ]:
        with subtests.test(text):
            assert parse_env_file(text, {"A", "B", "a.b-c"}) == variables


def test_nothing_is_read_after_the_last_variable_that_is_named() -> None:
    assert parse_env_file("A='x'\nB='y'\nwrong", {"A", "B"}) == {"A": "x", "B": "y"}


def test_anything_else_is_refused_with_its_line_and_without_its_value(subtests: pytest.Subtests) -> None:
    for text, line in [
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
        ("\n#\nA", 3),
        ("A='x'\n\n  # y\n  B", 4),
    ]:
        with subtests.test(text):
            with pytest.raises(EnvFileError, match=f"^line {line}: ") as error:
                parse_env_file(text, {"A", "none"})
            assert "x" not in str(error.value).replace("without", "")


def referring(*references: tuple[str, str]) -> Object:
    """A container with these paths and keys."""
    refs = [{"volumeName": "v", "path": path, "key": key} for path, key in references]
    return {"env": [{"name": f"E{n}", "valueFrom": {"fileKeyRef": ref}} for n, ref in enumerate(refs)]}


def reading(volume: Path, path: str) -> EnvFile:
    (found,) = read_env_files(referring((path, "A")), {"v": MountedVolume(host_path=str(volume))}).values()
    return found


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


def test_what_is_no_file_of_variables_is_an_error_without_details(volume: Path) -> None:
    (volume / "bad").write_text("A=x\n")
    (volume / "bytes").write_bytes(b"A='\xff'\n")
    (volume / "large").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    (volume / "loop").symlink_to("loop")
    os.mkfifo(volume / "pipe")
    for path in ("bad", "bytes", "large", "loop", "pipe", "d", "", "a\0b"):
        assert reading(volume, path) == EnvFile({}, error="couldn't parse env file"), path


def test_a_volume_that_is_not_mounted_has_no_files() -> None:
    assert read_env_files(referring(("a", "A")), {}) == {}


def test_a_file_is_read_once_and_only_the_keys_that_are_named_are_kept(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(root: Path, path: str) -> bytes:
        read.append(path)
        return read_inside(root, path)

    monkeypatch.setattr(env_files, "read_inside", counted)
    (volume / "f").write_text("A='x'\nB='y'\nC='z'\n")
    container = referring(("f", "A"), ("./f", "C"), ("././/f", "none"))
    found = read_env_files(container, {"v": MountedVolume(host_path=str(volume))})
    assert read == ["f"]
    assert found == {("v", "f"): EnvFile({"A": "x", "C": "z"})}


def test_a_key_above_the_line_that_is_wrong_is_known_and_one_below_is_not(volume: Path) -> None:
    (volume / "f").write_text("A='x'\nwrong\nB='y'\n")
    found = read_env_files(referring(("f", "A"), ("f", "B")), {"v": MountedVolume(host_path=str(volume))})
    assert found == {("v", "f"): EnvFile({"A": "x"}, error="couldn't parse env file")}


TOO_MUCH = "environment files are not read: a container may name 16 of 2 MiB together"


def test_more_files_than_a_container_may_name_are_not_read(volume: Path) -> None:
    container = referring(*((f"{'d/../' * n}a.env", "A") for n in range(MAX_FILES + 5)))
    found = list(read_env_files(container, {"v": MountedVolume(host_path=str(volume))}).values())
    assert found == [EnvFile({"A": "x"})] * MAX_FILES + [EnvFile({}, error=TOO_MUCH)] * 5


def test_larger_files_than_an_environment_has_room_for_are_not_read(volume: Path) -> None:
    for name in "efgh":
        (volume / name).write_text(f"A='{'x' * (900 << 10)}'\n")
    container = referring(*((name, "A") for name in "efgh"))
    found = read_env_files(container, {"v": MountedVolume(host_path=str(volume))})
    assert [file.error for file in found.values()] == ["", "", TOO_MUCH, TOO_MUCH]


def test_a_path_deeper_than_any_leads_nowhere_and_holds_few_descriptors(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = volume
    for _ in range(300):
        deep /= "d"
        deep.mkdir(exist_ok=True)
    opened = 0

    def counted(fd: int) -> int:
        nonlocal opened
        opened += 1
        return os.open(f"/proc/self/fd/{fd}", os.O_PATH)

    monkeypatch.setattr(os, "dup", counted)
    assert reading(volume, "d/" * 300 + "none").error == "couldn't parse env file"
    assert opened == 256
    assert reading(volume, "./" * 3000 + "a.env") == EnvFile({"A": "x"})
    assert reading(volume, "../" * 3000 + "a.env").error == "couldn't parse env file"


def test_nothing_stays_open(volume: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("a.env", "d/b.env", "d/none", "../a.env", "d"):
        try:
            read_inside(volume, path)
        except OSError:
            continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before
