"""Client certificates are verified alike on every Python that Bulkhead supports, whatever its ssl module's defaults."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from tests.process.tls_site import Authority
from tests.support.installed.lacking import require_command
from tests.support.installed.pythons import Interpreter, from_debian, installed

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = CHECKOUT / "tests/programs/client_certificates.py"
USERS = {
    "": "",
    "known": "alice",
    "chained": "bob",
    "stranger": "handshake: unable to get local issuer certificate",
    "expired": "handshake: certificate has expired",
    "wrong-usage": "handshake: unsuitable certificate purpose",
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The CAs and pairs that the program reads."""
    authority, other = Authority("clients"), Authority("others")
    intermediate = Authority("intermediate", under=authority)
    authority.write(tmp_path / "ca.pem")
    other.write(tmp_path / "other-ca.pem")
    authority.issue(tmp_path / "serving", "node-1", server=True)
    authority.issue(tmp_path / "known", "alice", "system:masters", days=2)
    authority.issue(tmp_path / "expired", "carol", days=-1)
    authority.issue(tmp_path / "wrong-usage", "dave", server=True)
    other.issue(tmp_path / "stranger", "eve")
    intermediate.issue(tmp_path / "chained", "bob")
    with (tmp_path / "chained.crt").open("ab") as chain:
        chain.write(intermediate.certificate.public_bytes(Encoding.PEM))
    return tmp_path


def test_of_the_python_that_runs_the_agent(files: Path) -> None:
    _check(Interpreter(sys.executable), "{}.{}".format(*sys.version_info[:2]), files)


@pytest.mark.night
@pytest.mark.root
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_of_every_supported_python(version: str, files: Path) -> None:
    if os.geteuid() == 0 and (interpreter := installed(version)) is None:
        require_command("mmdebstrap")
        interpreter = from_debian(version)
    if interpreter is None:
        pytest.skip(f"no python{version} on PATH, in pyenv or in a suite of Debian")
    _check(interpreter, version, files)


def _check(interpreter: Interpreter, version: str, files: Path) -> None:
    found: dict[str, Any] = json.loads(interpreter.run(str(PROGRAM), str(files), PYTHONPATH=str(CHECKOUT)))
    assert "{}.{}".format(*found["python"]) == version
    versions = ("TLS 1.2", "TLS 1.3")
    expected = {f"{name} {tls}".strip(): user for tls in versions for name, user in USERS.items()}
    replaced = {
        name: "refused: verified by a client CA that has been replaced" if user in ("alice", "bob") else user
        for name, user in expected.items()
    }
    assert found["ca"] == found["more"] == found["ca again"] == expected
    assert found["other"] == replaced
