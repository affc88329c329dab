"""The files that services load: complete, private, written only when they differ."""

import stat
from pathlib import Path

import pytest

from services.bootstrap.adapters.credential_files import CredentialFiles
from services.bootstrap.adapters.resolved_credentials import ResolvedCredentials
from shared.errors import OperatorError
from shared.kube.credentials import Credentials, load_credentials

FIRST = ResolvedCredentials(
    server="https://a:1", ca="CA\r\n", certificate="C", key="K", token="T", proxy_url="http://u:p@x:1"
)


@pytest.fixture
def files(tmp_path: Path) -> CredentialFiles:
    files = CredentialFiles(tmp_path)
    files.prepare()
    return files


def contents(found: Credentials) -> list[bytes]:
    names = (found.ca_file, found.client_certificate_file, found.client_key_file, found.token_file)
    return [Path(name).read_bytes() if name else b"" for name in names]


def names(files: CredentialFiles) -> list[str]:
    return sorted(path.name for path in files.directory.iterdir())


def test_what_is_put_is_what_is_loaded_and_no_other_user_can_read_it(tmp_path: Path, files: CredentialFiles) -> None:
    assert files.put(FIRST)
    found = load_credentials(tmp_path)
    assert (found.version, found.server, found.proxy_url) == (1, "https://a:1", "http://u:p@x:1")
    assert contents(found) == [b"CA\r\n", b"C", b"K", b"T"]
    assert "u:p" not in repr(found)
    assert stat.S_IMODE(files.directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.directory.iterdir()} == {0o600}


def test_the_same_again_touches_nothing(files: CredentialFiles) -> None:
    files.put(FIRST)
    before = {path: path.stat().st_mtime_ns for path in files.directory.iterdir()}
    assert not files.put(FIRST)
    assert {path: path.stat().st_mtime_ns for path in files.directory.iterdir()} == before


def test_the_set_before_stays_for_those_who_hold_it_and_older_ones_go(tmp_path: Path, files: CredentialFiles) -> None:
    files.put(FIRST)
    first = load_credentials(tmp_path)
    files.put(ResolvedCredentials(server="https://a:1", token="T2"))
    second = load_credentials(tmp_path)
    assert contents(first) == [b"CA\r\n", b"C", b"K", b"T"]
    assert (second.version, contents(second)) == (2, [b"", b"", b"", b"T2"])
    files.put(ResolvedCredentials(server="https://a:1", token="T3"))
    assert names(files) == ["2.token", "3.token", "credentials.json"]


def test_files_that_a_crash_left_are_not_taken_for_others(tmp_path: Path, files: CredentialFiles) -> None:
    (files.directory / "1.client.crt").write_text("half")
    (files.directory / ".1.token.7.tmp").touch()
    files.prepare()
    files.put(FIRST)
    assert load_credentials(tmp_path).version == 2
    assert names(files) == [
        "2.ca.crt",
        "2.client.crt",
        "2.client.key",
        "2.token",
        "credentials.json",
    ]


def test_a_removed_file_is_written_again(tmp_path: Path, files: CredentialFiles) -> None:
    files.put(FIRST)
    Path(load_credentials(tmp_path).client_key_file).unlink()
    assert files.put(FIRST)
    assert contents(load_credentials(tmp_path)) == [b"CA\r\n", b"C", b"K", b"T"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": 2}', b'{"format": 1, "credentials": {"version": "x"}}'])
def test_a_spoilt_file_is_one_line_and_replaced(tmp_path: Path, files: CredentialFiles, content: bytes) -> None:
    (files.directory / "credentials.json").write_bytes(content)
    with pytest.raises(OperatorError, match="cannot be used"):
        load_credentials(tmp_path)
    assert files.put(FIRST)
    assert load_credentials(tmp_path).server == "https://a:1"


def test_alone_again_nothing_is_left(tmp_path: Path, files: CredentialFiles) -> None:
    files.put(FIRST)
    files.remove()
    assert not files.directory.exists()
    files.remove()
    with pytest.raises(FileNotFoundError):
        load_credentials(tmp_path)
