"""Volumes of FlexVolume drivers, which are programs in sh and Python that work, fail, hang and are replaced."""

import base64
import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters import flex_drivers
from services.volume.adapters.mounts import is_mount_point
from services.volume.adapters.programs import leads_session_on
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import ContentError, FoundObject, SetUpInputs
from services.volume.core.specs.flex_volume import FlexVolume
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.flex_volume import FlexVolumePlugin
from services.volume.plugins.registry import persistent_volume_spec, volume_spec
from tests.fakes.flex_machine import PROGRAMS, FlexMachine, until

PASSWORD = "correct horse"


def read(**source: Any) -> VolumeSpec | Refused:
    pod = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {
            "serviceAccountName": "builder",
            "securityContext": {"fsGroup": os.getegid()},
            "volumes": [{"name": "v", "flexVolume": source}],
        },
    }
    return volume_spec(pod, "v", Node())


def volume_of(driver: str = "acme/disk", **source: Any) -> FlexVolume:
    found = read(driver=driver, **source)
    assert isinstance(found, VolumeSpec) and isinstance(found.source, FlexVolume)
    return found.source


def secret(kind: str = "acme/disk") -> SetUpInputs:
    data = {"password": base64.b64encode(PASSWORD.encode()).decode()}
    return SetUpInputs(objects={ObjectKey("Secret", "shop", "s"): FoundObject({"type": kind, "data": data})})


class Machine(FlexMachine):
    """A machine whose driver mounts for pods."""

    def set_up(self, gathered: SetUpInputs | None = None, **source: Any) -> Path:
        return Path(self.plugin.set_up("u", "v", volume_of(**source), gathered or SetUpInputs()))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(tmp_path, "v")
    found.install("flex_driver.py")
    return found


def test_a_driver_gets_the_options_of_the_kubelet_those_of_the_pod_win(machine: Machine) -> None:
    options = {"share": "x", "kubernetes.io/fsType": "mine"}
    path = machine.set_up(secret(), fsType="ext4", readOnly=True, secretRef={"name": "s"}, options=options)
    assert path == machine.path
    assert json.loads((path / "mounted").read_text()) == {
        "kubernetes.io/fsType": "mine",
        "kubernetes.io/readwrite": "ro",
        "kubernetes.io/pvOrVolumeName": "v",
        "kubernetes.io/secret/password": base64.b64encode(PASSWORD.encode()).decode(),
        "kubernetes.io/mounterArgs.FsGroup": str(os.getegid()),
        "kubernetes.io/pod.name": "web",
        "kubernetes.io/pod.namespace": "shop",
        "kubernetes.io/pod.uid": "u",
        "kubernetes.io/serviceAccount.name": "builder",
        "share": "x",
    }
    machine.restart()
    assert [(found.name, found.plugin) for found in machine.plugin.reconstruct("u")] == [("v", FlexVolumePlugin.name)]
    machine.tear_down()
    assert (machine.path.exists(), machine.plugin.reconstruct("u")) == (False, [])
    assert machine.calls() == ["init", f"mount {path}", f"unmount {path}"]


def test_a_persistent_volume_may_have_its_secret_in_a_namespace_of_its_own() -> None:
    source = {"driver": "acme/disk", "secretRef": {"name": "s", "namespace": "storage"}}
    pod = {"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}
    for mode, expected in (("Filesystem", VolumeSpec), ("Block", Refused)):
        volume_spec_ = {"flexVolume": source, "volumeMode": mode}
        persistent = PersistentVolume(name="pv-1", spec=volume_spec_, annotations={}, claim={}, read_only=True)
        found = persistent_volume_spec(pod, persistent, Node(labels={}))
        assert isinstance(found, expected)
        if isinstance(found, VolumeSpec):
            assert (found.key, found.read_only) == ("kubernetes.io/flexvolume/pv-1", True)
            assert found.objects == {ObjectKey("VolumeSecret", "storage", "s")}


def test_the_files_belong_to_the_pods_group_where_the_driver_can_do_that(machine: Machine) -> None:
    path = machine.set_up()
    assert path.stat().st_mode & 0o2770 == 0o2770
    assert machine.plugin.usage("u", "v", volume_of()) is not None
    machine.tear_down()
    machine.restart()
    machine.fault("init no fsGroup")
    assert machine.set_up().stat().st_mode & 0o2070 == 0o050


@pytest.mark.root
def test_a_mount_of_a_driver_in_sh_is_found_after_a_restart_and_unmounted(machine: Machine) -> None:
    machine.install("flex_driver.sh")
    try:
        assert is_mount_point(machine.set_up())
        machine.restart()
        assert is_mount_point(machine.set_up())
        machine.tear_down()
        assert not machine.path.exists()
        machine.set_up()
        (machine.here / "unmount").touch()
        machine.tear_down()
        assert not machine.path.exists()
        (machine.here / "half").touch()
        with pytest.raises(
            OSError, match=r"acme/disk was called to mount, .* status 0: it printed 17 bytes that are no"
        ):
            machine.set_up()
        assert not machine.path.exists()
        (machine.here / "half").unlink()
        path = machine.set_up()
        (machine.here / "disk").unlink()
        with pytest.raises(
            OSError, match=f"{path} cannot be unmounted: there is no FlexVolume driver acme/disk: install"
        ):
            machine.tear_down()
        assert is_mount_point(path)
    finally:
        subprocess.run(("umount", "--quiet", str(machine.path)), check=False)
    machine.tear_down()  # nothing is in the directory any more
    assert not machine.path.exists()
    calls = [call for call in machine.calls() if call != "init"]
    assert calls == ["mount", "unmount", "mount", "unmount", "mount", "unmount", "mount"]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("half", r"was called to mount, and ended with exit status 0: it printed 16 bytes that are no JSON object"),
        ("more", r"was called to mount, and ended with exit status 0: it printed 42 bytes that are no JSON object"),
        ("long", r"was called to mount, and ended with exit status 0: it printed more than 65536 bytes"),
        ("exit", r"was called to mount, and ended with exit status 3: it printed the status Success"),
        (
            "fail",
            r'^mount command failed, status: Failure, reason: cannot /.*"kubernetes.io/secret/password": "\*\*\*"',
        ),
    ],
)
def test_an_answer_that_is_none_is_an_error_without_the_secret(machine: Machine, fault: str, text: str) -> None:
    machine.fault(f"mount {fault}")
    with pytest.raises(OSError, match=text) as failed:
        machine.set_up(secret(), secretRef={"name": "s"}, options={"note": PASSWORD})
    for value in (PASSWORD, base64.b64encode(PASSWORD.encode()).decode()):
        assert value not in str(failed.value)
    assert PASSWORD not in repr(volume_of(options={"note": PASSWORD}))
    machine.fault("")
    assert (machine.set_up() / "mounted").is_file()


def test_a_secret_of_another_type_is_not_given_to_the_driver(machine: Machine) -> None:
    text = "couldn't get secret shop/s err: cannot get secret of type acme/disk"
    with pytest.raises(ContentError, match=text):
        machine.set_up(secret("Opaque"), secretRef={"name": "s"})
    assert machine.calls() == ["init"]


def test_options_that_no_program_takes_are_an_error(machine: Machine) -> None:
    with pytest.raises(OSError, match=r"have 13[0-9]{4} bytes, and a FlexVolume driver takes at most 131071"):
        machine.set_up(options={"x": "x" * 131072})
    assert (machine.set_up(options={"x": "x" * 130000}) / "mounted").is_file()


def test_a_driver_that_hangs_is_killed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.plugin._flex.capabilities("acme/disk")
    machine.fault("mount hang")
    with monkeypatch.context() as short:
        short.setattr(flex_drivers, "CALL_SECONDS", 0.1)
        with pytest.raises(TimeoutError, match=r"acme/disk was called to mount, and has not ended within 0.1 s"):
            machine.set_up()
    machine.fault("")
    until(lambda: not leads_session_on(machine.path, machine.here / "disk"))
    assert (machine.set_up() / "mounted").is_file()


def test_what_a_driver_leaves_in_the_background_holds_up_nothing(machine: Machine) -> None:
    machine.fault("mount fork")
    path = machine.set_up()
    until(lambda: (machine.here / "child").exists() and (machine.here / "child").read_text() != "")
    child = int((machine.here / "child").read_text())
    try:
        machine.tear_down()
        assert not path.exists()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_driver_that_outlives_its_process_is_awaited(machine: Machine) -> None:
    machine.fault("mount hang")
    with subprocess.Popen((machine.here / "disk", "mount", machine.path, "{}"), start_new_session=True) as left:
        try:
            until(lambda: (machine.here / "calls").exists() and len(machine.calls()) == 1)
            machine.path.mkdir(parents=True)
            for act in (machine.set_up, machine.tear_down):
                with pytest.raises(
                    OSError, match=f"an earlier call of the FlexVolume driver acme/disk for {machine.path}"
                ):
                    act()
        finally:
            left.kill()
    machine.tear_down()
    assert not machine.path.exists()


def test_a_driver_that_is_replaced_while_it_runs_ends_its_call_and_the_new_one_is_asked_what_it_can(
    machine: Machine,
) -> None:
    machine.fault("mount wait")
    running = threading.Thread(target=machine.set_up)
    running.start()
    until(lambda: (machine.here / "calls").exists() and len(machine.calls()) == 2)
    machine.install("flex_driver.sh")
    (machine.here / "go").touch()
    running.join()
    assert (machine.path / "mounted").is_file()
    assert machine.plugin._flex.capabilities("acme/disk").fs_group
    machine.install("flex_driver.py")
    machine.tear_down()
    assert machine.calls() == ["init", f"mount {machine.path}", "init", f"unmount {machine.path}"]


def test_a_driver_whose_init_names_no_capabilities_attaches(machine: Machine) -> None:
    (machine.here / "disk").unlink()
    (machine.here / "disk").symlink_to("/bin/echo")
    with pytest.raises(OSError, match="ended with exit status 0: it printed 5 bytes that are no JSON object"):
        machine.set_up()
    (machine.here / "disk").unlink()
    (machine.here / "disk").write_text('#!/bin/sh\necho \'{"status": "Success"}\'\n')
    (machine.here / "disk").chmod(0o755)
    assert machine.plugin._flex.capabilities("acme/disk").attach
    with pytest.raises(OSError, match="acme/disk was replaced, and attaches volumes to nodes now: the volume waits"):
        machine.set_up()  # it was read when the driver did not attach
    assert not machine.path.exists()


def test_a_driver_is_an_executable_in_a_directory_of_its_own(machine: Machine) -> None:
    (machine.drivers / "acme~link").symlink_to(machine.here)
    (machine.here / "link").symlink_to(PROGRAMS / "flex_driver.py")
    with pytest.raises(
        OSError, match=r"acme/link is not used: .*/acme~link is a symbolic link, and must be a directory"
    ):
        machine.set_up(driver="acme/link")
    (machine.drivers / "plain").mkdir()
    (machine.drivers / "plain" / "plain").write_text("x")
    with pytest.raises(OSError, match=r"plain is not used: .*/plain/plain is no executable file"):
        machine.set_up(driver="plain")
    with pytest.raises(
        FileNotFoundError, match=r"there is no FlexVolume driver other: install it as .*/other/other \(vol"
    ):
        machine.set_up(driver="other")


@pytest.mark.parametrize(
    "driver",
    [
        "",
        ".hidden",
        "acme/.hidden",
        ".acme/disk",
        "..",
        "../disk",
        "a/b/c",
        "acme~disk",
        "kubernetes.io/nfs",
        "a/",
        "mounts",
        "acme/mounts",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(driver: str) -> None:
    found = read(driver=driver)
    assert isinstance(found, Refused)
    assert found.reason.startswith(f"the driver {driver!a} of a flexVolume must be <vendor>/<driver> or <driver>")
