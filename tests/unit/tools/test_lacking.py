"""What a test needs and the machine lacks: a failure in CI, a skip elsewhere, and both name the package."""

import pytest

from tests.support.installed import lacking
from tools.prerequisites import Prerequisite

MESSAGE = "no-such-command is missing on this machine: apt-get install some-package"


@pytest.fixture(autouse=True)
def one_prerequisite(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = (Prerequisite("no-such-command", "some-package", "test"), Prerequisite("sh", "dash", "test"))
    monkeypatch.setattr(lacking, "PREREQUISITES", needed)


def test_a_missing_command_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=MESSAGE):
        lacking.require_command("no-such-command")


def test_a_missing_command_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match=MESSAGE):
        lacking.require_command("no-such-command")


def test_a_command_that_is_there_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    lacking.require_command("sh")


def test_a_test_may_only_require_what_make_test_installs() -> None:
    with pytest.raises(AssertionError, match=r"tools/prerequisites\.py"):
        lacking.require_command("unheard-of")


def test_a_test_that_needs_no_runtime_needs_root_and_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lacking, "missing_packages", lambda *_: ["containerd", "runc"])
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert lacking.lacking_for_root(runtime=True) == "missing on this machine: apt-get install containerd runc"
    assert lacking.lacking_for_root(runtime=False) == ""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert lacking.lacking_for_root(runtime=False) == "needs root: sudo make test"
