"""The run directory, its addresses, and the manifest file."""

import os
from pathlib import Path

import pytest

from bus import manifest
from bus.messages.streams import SERVICES
from shared.errors import OperatorError


def test_addresses_follow_from_the_run_directory() -> None:
    found = manifest.addresses(Path("/run/bulkhead"))
    assert set(found) == set(SERVICES)
    assert found["podsync"] == {
        "pub": "ipc:///run/bulkhead/bus/podsync.pub",
        "req": "ipc:///run/bulkhead/bus/podsync.req",
    }


def test_the_longest_path_that_fits_is_accepted_and_one_byte_more_refused() -> None:
    fits = Path("/" + "r" * (manifest.MAX_SOCKET_PATH_BYTES - len("/bus/bootstrap.req") - 1))
    manifest.check_socket_paths(fits)
    with pytest.raises(OperatorError) as refusal:
        manifest.check_socket_paths(Path(f"{fits}r"))
    assert str(refusal.value) == (
        f"run directory {fits}r: too long for sockets: 108 bytes, at most 107"
        " (choose a run directory whose path has at most 89 bytes)"
    )


def test_bytes_count_and_not_characters() -> None:
    with pytest.raises(OperatorError, match="too long for sockets"):
        manifest.check_socket_paths(Path("/" + "ü" * 50))


def test_a_relative_run_directory_is_refused() -> None:
    with pytest.raises(OperatorError, match="is not an absolute path"):
        manifest.addresses(Path("run"))


def _modes(run_dir: Path) -> list[int]:
    return [(run_dir / name).stat().st_mode & 0o7777 for name in ("", "bus", "locks")]


class TestRunDirectory:
    @pytest.mark.parametrize("umask", [0o022, 0o077])
    def test_lets_others_pass_by_name_and_into_no_other_directory(self, tmp_path: Path, umask: int) -> None:
        before = os.umask(umask)
        try:
            manifest.prepare_run_dir(tmp_path / "deep" / "run")
        finally:
            os.umask(before)
        assert _modes(tmp_path / "deep" / "run") == [0o711, 0o700, 0o700]

    def test_of_an_earlier_release_lets_others_pass_from_then_on(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir(mode=0o700)
        manifest.prepare_run_dir(tmp_path / "run")
        assert _modes(tmp_path / "run") == [0o711, 0o700, 0o700]

    def test_may_be_there_already(self, tmp_path: Path) -> None:
        manifest.prepare_run_dir(tmp_path / "run")
        manifest.prepare_run_dir(tmp_path / "run")

    @pytest.mark.parametrize(("name", "mode", "right"), [("", 0o755, "0711"), ("bus", 0o711, "0700"),
                                                         ("locks", 0o711, "0700")])  # fmt: skip
    def test_a_directory_open_to_others_is_refused_with_the_remedy(
        self, tmp_path: Path, name: str, mode: int, right: str
    ) -> None:
        run = tmp_path / "run"
        manifest.prepare_run_dir(run)
        (run / name).chmod(mode)
        with pytest.raises(OperatorError, match=rf"has mode {mode:04o}: .* \(chmod {right} .*run"):
            manifest.prepare_run_dir(run)

    def test_that_is_a_link_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OperatorError, match="is not a directory"):
            manifest.prepare_run_dir(tmp_path / "run")

    @pytest.mark.root
    def test_of_another_user_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir(mode=0o700)
        os.chown(tmp_path / "run", 12345, 12345)
        with pytest.raises(OperatorError, match="belongs to user 12345, not to 0"):
            manifest.prepare_run_dir(tmp_path / "run")

    def test_that_cannot_be_made_is_refused_in_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(OperatorError, match="cannot be prepared: File exists"):
            manifest.prepare_run_dir(tmp_path / "file" / "run")


class TestFile:
    def test_is_read_as_it_was_written_and_private(self, tmp_path: Path) -> None:
        written = manifest.new_manifest(tmp_path, embedded_containerd=True)
        manifest.write_manifest(written)
        assert manifest.read_manifest(tmp_path) == written
        assert (tmp_path / "manifest.json").stat().st_mode & 0o777 == 0o600

    def test_replaces_the_earlier_one_and_leaves_nothing_else(self, tmp_path: Path) -> None:
        manifest.write_manifest(manifest.new_manifest(tmp_path))
        newer = manifest.new_manifest(tmp_path, config_file="/etc/other.json")
        manifest.write_manifest(newer)
        assert manifest.read_manifest(tmp_path) == newer
        assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]

    def test_that_is_absent_is_an_operator_error(self, tmp_path: Path) -> None:
        with pytest.raises(OperatorError, match=r"manifest\.json: does not exist yet \(start bootstrap first\)"):
            manifest.read_manifest(tmp_path)

    def test_that_is_half_of_one_is_an_operator_error(self, tmp_path: Path) -> None:
        (tmp_path / "manifest.json").write_text('{"protocol":"1.0"')
        with pytest.raises(OperatorError, match=r"manifest\.json: not a Manifest"):
            manifest.read_manifest(tmp_path)

    def test_that_cannot_be_read_is_an_operator_error(self, tmp_path: Path) -> None:
        (tmp_path / "manifest.json").mkdir()
        with pytest.raises(OperatorError, match="cannot be read: Is a directory"):
            manifest.read_manifest(tmp_path)

    def test_of_another_major_version_is_an_operator_error(self, tmp_path: Path) -> None:
        written = manifest.new_manifest(tmp_path)
        (tmp_path / "manifest.json").write_text(
            f'{{"protocol":"3.0","run_dir":"{tmp_path}","addresses":{{}},'
            f'"config_file":"{written.config_file}","embedded_containerd":false}}'
        )
        with pytest.raises(OperatorError, match=r"is of bus protocol 3\.0, this is 2\.9"):
            manifest.read_manifest(tmp_path)
