"""`bulkhead support-bundle` writes an archive without secrets, of bounded size, also while processes do not answer."""

import json
import os
import random
import re
import signal
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.messages.services import SERVICES
from services.cli.agent.support_bundle import MAX_ARCHIVE_BYTES
from shared.config.effective import CredentialProvider
from shared.config.excerpt import CONFIG_NAME
from shared.config.loader import encode_effective, load_effective
from shared.model.frozen_copy import replace
from shared.story.files import directory_of
from tests.service.cli.stage import Stage

ENDINGS = ("log", "log.1")
HEADER = "Token-of-the-header"
LOGGED = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2lnbmF0dXJl"
KEY = "-----BEGIN PRIVATE KEY-----\nMHcCAQEEIE\n-----END PRIVATE KEY-----"
URL = "https://user-of-the-url@example.org/pods?sig=signature-of-the-url"
ARGUMENT, VARIABLE = "argument-of-the-plugin", "variable-of-the-plugin"
SECRETS = (HEADER, LOGGED, "MHcCAQEEIE", "user-of-the-url", "signature-of-the-url", ARGUMENT, VARIABLE)
PLUGIN = CredentialProvider(
    name="plugin",
    match_images=("registry.example",),
    default_cache_seconds=60.0,
    api_version="credentialprovider.kubelet.k8s.io/v1",
    args=(f"--key={ARGUMENT}",),
    env=(("KEY", VARIABLE),),
)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, 5)
    config = load_effective(str(stage.run_dir))
    header: dict[str, tuple[str, ...]] = {"Authorization": (HEADER,)}
    changed = replace(
        config,
        static_pod_url=URL,
        static_pod_url_header=header,
        given_flags={"manifest-url": URL, "v": "2"},
        document={"staticPodURL": URL, "staticPodURLHeader": {"Authorization": [HEADER]}},
        credential_providers=(PLUGIN,),
    )
    (stage.run_dir / CONFIG_NAME).write_bytes(encode_effective(changed, ""))
    stories = directory_of(config.root_dir)
    stories.mkdir(parents=True)
    story = [
        {"what": "pod", "uid": "u1", "name": "web", "namespace": "shop"},
        {"at": 1.0, "what": "probe", "output": KEY},
    ]
    (stories / "u1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in story))
    (stage.log_dir / "podsync.log").write_text(f"first\nAuthorization: Bearer {LOGGED}\n")
    yield stage
    stage.stop()


def contents(path: Path) -> dict[str, str]:
    """The parts of an archive by their names below its directory."""
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive.getmembers():
            file = archive.extractfile(entry)
            assert file is not None and entry.isreg()
            found[entry.name.partition("/")[2]] = file.read().decode()
        return found


def test_it_has_every_part_and_no_secret(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    answer = stage.command("support-bundle", "--file", str(path))
    assert answer.returncode == 0, answer.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = contents(path)
    names = {"versions.txt", "status.txt", "status.json", "configuration.json", "events.json", "logs/podsync.log"}
    assert names | {"stories/u1.jsonl", "problems.txt"} <= found.keys()
    assert json.loads(found["status.json"])["node"] == "here"
    assert json.loads(found["configuration.json"])["given_flags"]["v"] == "2"
    assert "first" in found["logs/podsync.log"] and "Failed" in found["events.json"]
    assert not [(name, secret) for name, text in found.items() for secret in SECRETS if secret in text]
    assert stage.command("support-bundle", "--file", str(path)).returncode == 1, "it replaces no file"


def test_processes_that_do_not_answer_are_named(stage: Stage, tmp_path: Path) -> None:
    stage.processes["podsync"].send_signal(signal.SIGSTOP)
    answer = stage.command("support-bundle", "--file", str(tmp_path / "bundle.tar.gz"))
    assert answer.returncode == 0, answer.stderr
    found = contents(tmp_path / "bundle.tar.gz")
    assert "stacks/podsync.txt: OperatorError: podsync is stopped by a signal" in found["problems.txt"]
    assert "podsync is stopped by a signal" in found["status.txt"]


@pytest.mark.long
def test_it_is_at_most_as_large_as_promised(stage: Stage, tmp_path: Path) -> None:
    noise = random.Random(1)
    for name in [f"{service}.{ending}" for service in (*SERVICES, "supervisord", "containerd") for ending in ENDINGS]:
        lines = (noise.randbytes(50).hex() for _ in range(12_000))
        (stage.log_dir / name).write_text("\n".join(lines))
    answer = stage.command("support-bundle", "--file", str(tmp_path / "bundle.tar.gz"))
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "bundle.tar.gz").stat().st_size <= MAX_ARCHIVE_BYTES
    assert "left out, the bundle is full" in contents(tmp_path / "bundle.tar.gz")["problems.txt"]


@pytest.mark.long
def test_logs_of_other_programs_are_left_out_and_a_cut_part_is_named(stage: Stage, tmp_path: Path) -> None:
    (stage.log_dir / "auth.log").write_text("sshd: of another program\n")
    config = load_effective(str(stage.run_dir))
    large = replace(config, given_flags={"v": "2" * (2 << 20)})
    (stage.run_dir / CONFIG_NAME).write_bytes(encode_effective(large, ""))
    assert stage.command("support-bundle", "--file", str(tmp_path / "bundle.tar.gz")).returncode == 0
    found = contents(tmp_path / "bundle.tar.gz")
    assert "logs/podsync.log" in found and "logs/auth.log" not in found
    assert re.search(
        r"^configuration\.json: \d+ bytes, of which the first 2097152 are here$", found["problems.txt"], re.M
    )


def test_a_place_that_cannot_be_written_is_one_line(stage: Stage, tmp_path: Path) -> None:
    answer = stage.command("support-bundle", "--file", str(tmp_path / "none" / "bundle.tar.gz"))
    assert answer.returncode == 1
    assert answer.stderr == (
        f"{tmp_path}/none/bundle.tar.gz: cannot be written: {os.strerror(2)} (name another file with --file)\n"
    )
