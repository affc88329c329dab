"""gitRepo volumes with the program git and repositories of this machine."""

import fcntl
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.mount_shares import MAX_CALLS_PER_MOUNT, MountShares, Share
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins import git_repo
from services.volume.plugins.git_repo import GitRepo, GitRepoPlugin
from services.volume.plugins.registry import volume_spec
from shared.files.tree_removal import RemovalProgress
from shared.time.clock import SystemClock

RELATIVE = "must be a relative path without .. and .git"
GATE = Node(gates=frozenset({"GitRepoVolumeDriver"}))


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always")
    command = ("git", "-C", str(directory), *identity, *words)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository `app` with two commits; the first is tagged `one`."""
    path = tmp_path / "app"
    path.mkdir()
    git(path, "init", "--quiet")
    for text in ("one", "two"):
        (path / "file").write_text(text)
        git(path, "add", "file")
        git(path, "commit", "--quiet", "--message", text)
        git(path, "tag", text)
    return path


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepoPlugin:
    """With repositories of this machine, too."""
    monkeypatch.setattr(git_repo, "PROTOCOLS", "file")
    return GitRepoPlugin(PodDirectories(str(tmp_path / "root")), SystemClock())


def set_up(plugin: GitRepoPlugin, source: GitRepo) -> Path:
    return Path(plugin.set_up("u", "v", source, SetUpInputs()))


def read(**source: Any) -> VolumeSpec | Refused:
    pod = {"spec": {"volumes": [{"name": "v", "gitRepo": source}]}}
    return volume_spec(pod, "v", GATE)


@pytest.mark.parametrize(
    ("directory", "revision", "file", "content"),
    [
        ("", "", "app/file", "two"),
        ("", "one", "app/file", "one"),
        (".", "one", "file", "one"),
        ("a/b", "", "a/b/file", "two"),
    ],
)
def test_a_repository_is_cloned_to_the_directory_at_the_revision(
    plugin: GitRepoPlugin, repository: Path, directory: str, revision: str, file: str, content: str
) -> None:
    source = GitRepo(str(repository), directory, revision)
    path = set_up(plugin, source)
    assert (path / file).read_text() == content
    (path / file).write_text("of the pod")
    assert (set_up(plugin, source) / file).read_text() == "of the pod"
    assert [found.name for found in plugin.reconstruct("u")] == ["v"]
    plugin.tear_down("u", "v", RemovalProgress())
    assert (plugin.reconstruct("u"), path.exists()) == ([], False)


def test_a_clone_that_was_killed_begins_anew(plugin: GitRepoPlugin, repository: Path) -> None:
    path = set_up(plugin, GitRepo(str(repository)))
    (plugin._cloned("u", "v") / "ready").unlink()
    (path / "app" / ".git" / "HEAD").unlink()
    (path / "link").symlink_to(repository)
    assert (set_up(plugin, GitRepo(str(repository))) / "app" / "file").read_text() == "two"
    assert [entry.name for entry in path.iterdir()] == ["app"]
    assert (repository / "file").is_file()


def test_a_git_that_outlives_its_process_is_awaited(plugin: GitRepoPlugin, repository: Path) -> None:
    path = set_up(plugin, GitRepo(str(repository)))
    (plugin._cloned("u", "v") / "ready").unlink()
    held = os.open(path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    for act in (
        lambda: set_up(plugin, GitRepo(str(repository))),
        lambda: plugin.tear_down("u", "v", RemovalProgress()),
    ):
        with pytest.raises(OSError, match=f"an earlier git of {path} has not ended"):
            act()
    os.close(held)
    plugin.tear_down("u", "v", RemovalProgress())
    assert not path.exists()


def test_a_git_whose_server_does_not_answer_ends_with_all_that_it_began(
    plugin: GitRepoPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_repo, "PROTOCOLS", "http")
    monkeypatch.setattr(git_repo, "_MAX_GIT_SECONDS", 2)
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(OSError, match=r"git clone .*: git was killed, .* did not end within 2 s$"):
            set_up(plugin, GitRepo(f"http://127.0.0.1:{server.getsockname()[1]}/app"))
        path = plugin._directories.volume("u", plugin.name, "v")
        for is_last in (*[False] * 600, True):  # what was killed may still be ending
            try:
                plugin.tear_down("u", "v", RemovalProgress())
                break
            except OSError:
                assert not is_last, "a program that git began still has the lock"
                time.sleep(0.1)
    assert not path.exists()


def test_a_repository_of_the_node_is_refused(
    plugin: GitRepoPlugin, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for name in (str(repository), f"file://{repository}", "ext::sh -c true"):
        with pytest.raises(OSError, match=r"failed to exec 'git clone -- .*transport '(file|ext)' not allowed"):
            set_up(plugin, GitRepo(name))


def test_what_fails_is_the_kubelets_text(plugin: GitRepoPlugin, repository: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"failed to exec 'git clone -- .*absent': .* does not exist: exit status 128"):
        set_up(plugin, GitRepo(str(tmp_path / "absent")))
    with pytest.raises(OSError, match=r"failed to exec 'git checkout three': .*: exit status 1"):
        set_up(plugin, GitRepo(str(repository), "", "three"))


def test_submodules_are_not_fetched(plugin: GitRepoPlugin, repository: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "--quiet")
    git(outer, "submodule", "--quiet", "add", str(repository), "inner")
    git(outer, "commit", "--quiet", "--message", "inner")
    path = set_up(plugin, GitRepo(str(outer), "", "HEAD"))
    assert list((path / "outer" / "inner").iterdir()) == []
    assert not (path / "outer" / ".git" / "modules").exists()


@pytest.mark.parametrize("target", ["/etc", "../../../x", "deep/../../..", "here/../../x"])
def test_a_link_that_leaves_the_volume_is_refused(plugin: GitRepoPlugin, repository: Path, target: str) -> None:
    (repository / "deep").mkdir()
    (repository / "deep" / "inside").symlink_to("../file")
    (repository / "here").symlink_to(".")
    (repository / "out").symlink_to(target)
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "link")
    with pytest.raises(OSError, match=r"has links that leave the volume: 'app/out'$"):
        set_up(plugin, GitRepo(str(repository)))
    git(repository, "rm", "--quiet", "out")
    git(repository, "commit", "--quiet", "--message", "gone")
    assert (set_up(plugin, GitRepo(str(repository))) / "app" / "deep" / "inside").read_text() == "two"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"repository": "--upload-pack=x"}, '"--upload-pack=x" is an invalid value for repository'),
        ({"repository": "r", "directory": "-x"}, '"-x" is an invalid value for directory'),
        ({"repository": "r", "revision": "--orphan"}, '"--orphan" is an invalid value for revision'),
        ({"repository": "r", "directory": "/etc"}, f"gitRepo directory '/etc': {RELATIVE}"),
        ({"repository": "r", "directory": "a/../.."}, f"gitRepo directory 'a/../..': {RELATIVE}"),
        ({"repository": "r", "directory": "a/.Git"}, f"gitRepo directory 'a/.Git': {RELATIVE}"),
        ({}, "a gitRepo volume needs a repository"),
    ],
)
def test_values_that_git_would_take_for_something_else_are_refused(source: dict[str, str], reason: str) -> None:
    assert read(**source) == Refused(reason)


@pytest.mark.parametrize(
    "repository", ["https://user:word@git.example/a/app", "ssh://git.example/app", "git@git.example:app"]
)
def test_clones_of_one_server_share_its_places_and_none_waits_for_that_of_another_pod(repository: str) -> None:
    pods = [
        {"metadata": {"uid": uid}, "spec": {"volumes": [{"name": "v", "gitRepo": {"repository": repository}}]}}
        for uid in "ab"
    ]
    paths = [spec.node_path for spec in (volume_spec(pod, "v", GATE) for pod in pods) if isinstance(spec, VolumeSpec)]
    assert [MountShares().share_of(path) for path in paths] == [Share("git.example", MAX_CALLS_PER_MOUNT)] * 2
    assert len(set(paths)) == 2


def test_without_its_feature_gate_the_volume_says_what_to_use_instead() -> None:
    refused = volume_spec({"spec": {"volumes": [{"name": "v", "gitRepo": {"repository": "r"}}]}}, "v", Node())
    assert isinstance(refused, Refused) and refused.unsupported
    assert refused.reason == (
        "the volume plugin gitRepo needs the feature gate GitRepoVolumeDriver, which Kubernetes 1.36 has locked: use an"
        " emptyDir that an init container fills with git clone"
    )
