"""A home is laid out once, keeps what its owner edits, and refuses what cannot work in one line."""

from pathlib import Path

import pytest

from shared.config.evaluation import evaluate
from shared.errors import OperatorError
from tools.home import CHECKOUT, Home, render_supervisord_conf
from tools.leftovers import HOME_MARKER, check_marker, remove_home


def test_a_new_home_holds_the_example_and_everything_points_into_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    assert not list(home.manifests.iterdir()), "the agent would start a pod before its images are there"
    home.add_example()
    assert (home.path / "kubelet.yaml").read_text() == (CHECKOUT / "examples" / "kubelet.yaml").read_text()
    assert f"--config={home.path}/kubelet.yaml" in (home.path / "kubelet.args").read_text()
    assert (home.manifests / "hello.yaml").exists()
    conf = home.supervisord_conf.read_text()
    assert f'environment=BULKHEAD_HOME="{home.path}"' in conf
    assert f"command={CHECKOUT}/.venv/bin/python -P -m services.podsync" in conf
    assert "/run/bulkhead" not in conf and "/var/log" not in conf and "%(here)s" not in conf


def test_the_example_configuration_is_accepted_and_all_of_it_has_an_effect() -> None:
    resolved = evaluate([f"--config={CHECKOUT}/examples/kubelet.yaml"])
    assert (resolved.without_effect, resolved.remarks) == ((), ())
    assert (resolved.config.address, resolved.config.read_only_port) == ("127.0.0.1", 10255)
    assert resolved.config.embedded_containerd is not None


def test_what_its_owner_edited_or_removed_stays_so(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    home.add_example()
    (home.manifests / "hello.yaml").unlink()
    for name in ("kubelet.yaml", "kubelet.args", "supervisord.conf"):
        (home.path / name).write_text(f"{(home.path / name).read_text()}# mine\n")
    home.make()
    home.add_example()
    assert not list(home.manifests.iterdir())
    assert all(
        (home.path / name).read_text().endswith("# mine\n")
        for name in ("kubelet.yaml", "kubelet.args", "supervisord.conf")
    )


def test_a_first_run_that_was_killed_before_its_example_gets_it_from_the_next_one(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    (home.manifests / ".hello.yaml").touch()  # a copy that was cut off
    home.make()
    home.add_example()
    assert [path.name for path in home.manifests.iterdir()] == ["hello.yaml"]


def test_a_home_of_an_earlier_version_without_manifests_gets_no_example(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.manifests.mkdir(parents=True)  # its owner has removed the example
    (home.path / HOME_MARKER).touch()
    home.make()
    home.add_example()
    assert not list(home.manifests.iterdir())


def test_an_untouched_supervisord_conf_follows_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    home.make()
    moved = tmp_path / "moved"
    (moved / "examples").mkdir(parents=True)
    (moved / "supervisord.conf").write_text((CHECKOUT / "supervisord.conf").read_text())
    monkeypatch.setattr("tools.home.CHECKOUT", moved)
    home.make()
    assert f"command={moved}/.venv/bin/python" in home.supervisord_conf.read_text()


def test_a_supervisord_conf_that_cannot_be_moved_into_a_home_is_noticed() -> None:
    with pytest.raises(ValueError, match="no longer contains"):
        render_supervisord_conf("[supervisord]\n", Path("/opt/bulkhead"), Path("/srv/home"))


def test_a_path_too_long_for_sockets_is_refused_with_what_would_fit(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"BULKHEAD_HOME=.*more than 107.*choose a directory of at most \d+ bytes"):
        Home(tmp_path / ("x" * 100)).check()


@pytest.mark.parametrize("name", ["with space", "per%cent", "semi;colon"])
def test_a_path_that_supervisord_would_misread_is_refused(name: str) -> None:
    with pytest.raises(OperatorError, match="supervisord"):
        Home(Path("/srv") / name).check()


def test_a_directory_with_other_things_in_it_is_neither_used_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(OperatorError, match="is not empty"):
        Home(tmp_path).make()
    with pytest.raises(FileNotFoundError):
        check_marker(tmp_path)
    with pytest.raises(FileNotFoundError):
        remove_home(tmp_path)
    assert (tmp_path / "precious").exists()
