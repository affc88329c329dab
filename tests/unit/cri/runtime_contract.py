"""What every `Runtime` must do, the fake as well as a real container runtime: one set of tests for both.

A test module subclasses `RuntimeContract` and gives a fixture `world`.
"""

import time
from pathlib import Path

import pytest

from shared.cri.interface import RuntimeCallError
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState, SandboxState
from tests.support.runtime.contract_world import World, look, started, until

BUSY_SECONDS = 60  # that a command or the end of a shell may take; on an idle machine both take milliseconds


_HINT = "; check if another CreateContainer request is in progress"  # of containerd 2, for a container


class RuntimeContract:
    """The tests. `is_containerd_2`: the answers are those of containerd 2, not those of 1.6."""

    is_containerd_2 = False

    def _check_reserved(self, refusal: RuntimeCallError, kind: str, name: str, holder: str) -> None:
        """The refusal of a name that is taken."""
        text = f'failed to reserve {kind} name "{name}": name "{name}" is reserved for "{holder}"'
        code = "FailedPrecondition" if self.is_containerd_2 else "Unknown"
        shown = f"rpc error: code = {code} desc = {text}" if self.is_containerd_2 else text
        assert (refusal.code, str(refusal).replace(_HINT, "")) == (code, shown)

    async def test_a_command_runs_in_a_running_container_and_nowhere_else(self, world: World) -> None:
        pod = world.new_pod()
        _, container = await started(world, pod)
        assert (await world.runtime.exec_sync(container, ["true"], BUSY_SECONDS)).exit_code == 0
        with pytest.raises(RuntimeCallError) as missing:
            await world.runtime.exec_sync("nothing", ["true"], 5)
        assert missing.value.code == "NotFound" and "ExecSync" in missing.value.method

    async def test_a_running_container_is_given_other_resources(self, world: World) -> None:
        pod = world.new_pod()
        _, container = await started(world, pod)
        limits = {"cpu_period": 100_000, "cpu_quota": 50_000, "cpu_shares": 512, "memory_limit_in_bytes": 64 << 20}
        for resources in (limits, {**limits, "cpu_quota": 20_000}):
            await world.runtime.update_container_resources(container, resources)
        assert (await look(world, pod)).containers[0].state is ContainerState.RUNNING
        with pytest.raises(RuntimeCallError) as missing:
            await world.runtime.update_container_resources("nothing", limits)
        assert missing.value.code == "NotFound"

    async def test_an_old_runtime_does_not_have_resources_of_sandboxes(self, world: World) -> None:
        sandbox = await world.runtime.run_pod_sandbox(world.new_pod(), "")
        with pytest.raises(RuntimeCallError) as missing:
            await world.runtime.update_pod_sandbox_resources(sandbox, {"cpu_shares": 512}, {})
        assert missing.value.code == "Unimplemented"

    async def test_images_are_listed_once_each_with_their_names(self, world: World) -> None:
        images = await world.runtime.list_images()
        assert len({image.id for image in images}) == len(images)
        (found,) = (image for image in images if world.image in image.repo_tags)
        assert found.size > 0 and found == await world.runtime.image_status(world.image)

    async def test_an_old_runtime_reports_no_handlers_and_features(self, world: World) -> None:
        features = await world.runtime.features()
        if self.is_containerd_2:
            assert "runc" in [handler.name for handler in features.handlers or ()]
            assert features.supplemental_groups_policy is True
            return
        assert features.handlers is None and features.supplemental_groups_policy is None

    async def test_an_old_runtime_reports_no_cgroup_driver(self, world: World) -> None:
        assert await world.runtime.runtime_config() == ("cgroupfs" if self.is_containerd_2 else None)

    async def test_it_takes_the_addresses_for_pods(self, world: World) -> None:
        await world.runtime.update_runtime_config("10.91.201.0/24,fd00:91:201::/64")
        await world.runtime.update_runtime_config("10.91.202.0/24")

    async def test_it_reports_its_name_and_version(self, world: World) -> None:
        version = await world.runtime.version()
        assert version.name == "containerd"
        assert version.version
        assert version.api_version == "v1"

    async def test_it_reports_the_conditions_of_runtime_and_network(self, world: World) -> None:
        conditions = {condition.type: condition.status for condition in await world.runtime.status()}
        assert conditions["RuntimeReady"] and conditions["NetworkReady"]

    async def test_an_unknown_pod_is_absent(self, world: World) -> None:
        assert await world.runtime.observe("no-such-pod") == {}

    async def test_a_new_sandbox_is_ready_with_an_address_and_its_identity(self, world: World) -> None:
        pod = world.new_pod(attempt=2)
        before = time.monotonic()
        sandbox_id = await world.runtime.run_pod_sandbox(pod, "")
        seen = await look(world, pod)
        (sandbox,) = seen.sandboxes
        assert (seen.name, seen.namespace) == ("pod", "rec")
        assert before <= seen.observed_at <= time.monotonic()
        assert (sandbox.id, sandbox.attempt, sandbox.state) == (sandbox_id, 2, SandboxState.READY)
        assert sandbox.network_reported and len(sandbox.ips) == 1 and not sandbox.host_network
        assert sandbox.pid > 0 and sandbox.created_at > 0

    @pytest.mark.parametrize(("value", "source"), [("file", "file"), ("http", "http"), ("api", ""), ("other", "")])
    async def test_the_source_of_a_static_pod_is_that_of_its_annotation(
        self, world: World, value: str, source: str
    ) -> None:
        pod = {**world.new_pod(), "annotations": {"kubernetes.io/config.source": value}}
        await world.runtime.run_pod_sandbox(pod, "")
        assert (await look(world, pod)).sandboxes[0].static_source == source

    async def test_the_pods_of_a_name_are_found(self, world: World) -> None:
        pods = [world.new_pod(), world.new_pod()]
        for pod in pods:
            await world.runtime.run_pod_sandbox(pod, "")
        uids = {pod["metadata"]["uid"] for pod in pods}
        assert uids <= await world.runtime.uids_of("rec", "pod")
        assert not uids & await world.runtime.uids_of("rec", "other")
        assert not uids & await world.runtime.uids_of("other", "pod")

    async def test_a_sandbox_of_the_same_name_and_attempt_is_refused(self, world: World) -> None:
        pod = world.new_pod()
        first = await world.runtime.run_pod_sandbox(pod, "")
        with pytest.raises(RuntimeCallError) as refusal:
            await world.runtime.run_pod_sandbox(pod, "")
        name = f"pod_rec_{pod['metadata']['uid']}_0"
        self._check_reserved(refusal.value, "sandbox", name, first)

    async def test_the_next_attempt_of_a_sandbox_comes_first_in_the_list(self, world: World) -> None:
        pod = world.new_pod()
        first = await world.runtime.run_pod_sandbox(pod, "")
        await world.runtime.stop_pod_sandbox(first)
        second = await world.runtime.run_pod_sandbox(
            {**pod, "metadata": {**pod["metadata"], "attempt": 1}},
            "",
        )
        assert [s.id for s in (await look(world, pod)).sandboxes] == [second, first]

    async def test_a_container_goes_from_created_to_running_to_exited(self, world: World) -> None:
        pod = world.new_pod()
        sandbox_id = await world.runtime.run_pod_sandbox(pod, "")
        container_id = await world.runtime.create_container(sandbox_id, world.container(pod, attempt=3), pod)
        (created,) = (await look(world, pod)).containers
        assert (created.id, created.name, created.sandbox_id) == (container_id, "c", sandbox_id)
        assert (created.state, created.started_at, created.pid) == (ContainerState.CREATED, 0, 0)
        assert (created.attempt, created.restart_count, created.spec_hash) == (3, 3, "8e45cbd0")
        assert created.log_path == f"{pod['log_directory']}/c/3.log"

        await world.runtime.start_container(container_id)
        (running,) = (await look(world, pod)).containers
        assert running.state is ContainerState.RUNNING
        assert running.started_at >= running.created_at > 0 and running.pid > 0

        await world.wait_for_trap(running)
        world.termination_file(pod).write_text("so long")
        await world.runtime.stop_container(container_id, BUSY_SECONDS)
        (exited,) = (await look(world, pod)).containers
        assert (exited.state, exited.exit_code, exited.pid) == (ContainerState.EXITED, 7, 0)
        assert exited.finished_at >= exited.started_at == running.started_at
        assert (exited.reason, exited.termination_message) == ("Error", "so long")

    async def test_a_log_that_was_renamed_is_opened_again_while_the_container_runs(self, world: World) -> None:
        pod = world.new_pod()
        _, container_id = await started(world, pod)
        (running,) = (await look(world, pod)).containers
        log = Path(running.log_path)
        log.touch()  # as the runtime makes it
        log.rename(f"{log}.moved")
        await world.runtime.reopen_container_log(container_id)
        assert log.exists()
        await world.runtime.stop_container(container_id, 5)
        log.unlink()
        with pytest.raises(RuntimeCallError) as refused:
            await world.runtime.reopen_container_log(container_id)
        assert (refused.value.code, refused.value.description) == ("Unknown", "container is not running")
        assert not log.exists()

    async def test_no_log_is_opened_for_a_container_the_runtime_does_not_know(self, world: World) -> None:
        with pytest.raises(RuntimeCallError) as refused:
            await world.runtime.reopen_container_log("0123456789ab")
        assert refused.value.code == "NotFound"

    async def test_a_killed_container_shows_its_exit_code_without_being_asked_to_stop(self, world: World) -> None:
        pod = world.new_pod()
        await started(world, pod)
        (running,) = (await look(world, pod)).containers
        world.kill(running)
        seen = await until(world, pod, lambda p: p.containers[0].state is ContainerState.EXITED)
        assert seen.containers[0].exit_code == 137
        assert seen.sandboxes[0].state is SandboxState.READY

    async def test_a_container_of_the_same_name_and_attempt_is_refused(self, world: World) -> None:
        pod = world.new_pod()
        sandbox, first = await started(world, pod)
        with pytest.raises(RuntimeCallError) as refusal:
            await world.runtime.create_container(sandbox, world.container(pod), pod)
        name = f"c_pod_rec_{pod['metadata']['uid']}_0"
        self._check_reserved(refusal.value, "container", name, first)

    async def test_removing_frees_the_name(self, world: World) -> None:
        pod = world.new_pod()
        sandbox, first = await started(world, pod)
        await world.runtime.remove_container(first)
        second = await world.runtime.create_container(sandbox, world.container(pod), pod)
        assert [c.id for c in (await look(world, pod)).containers] == [second]

    async def test_the_newest_container_comes_first(self, world: World) -> None:
        pod = world.new_pod()
        sandbox, first = await started(world, pod)
        await world.runtime.stop_container(first, 5)
        second = await world.runtime.create_container(sandbox, world.container(pod, attempt=1), pod)
        other = await world.runtime.create_container(sandbox, world.container(pod, name="d"), pod)
        assert [c.id for c in (await look(world, pod)).containers] == [other, second, first]

    async def test_stopping_a_sandbox_stops_what_runs_in_it(self, world: World) -> None:
        pod = world.new_pod()
        sandbox, _ = await started(world, pod)
        await world.runtime.stop_pod_sandbox(sandbox)
        seen = await look(world, pod)
        assert seen.sandboxes[0].state is SandboxState.NOTREADY
        assert seen.containers[0].state is ContainerState.EXITED

    async def test_removing_a_sandbox_takes_the_pod_away(self, world: World) -> None:
        pod = world.new_pod()
        sandbox, _ = await started(world, pod)
        await world.runtime.stop_pod_sandbox(sandbox)
        await world.runtime.remove_pod_sandbox(sandbox)
        assert await world.runtime.observe(pod["metadata"]["uid"]) == {}

    async def test_stopping_twice_and_removing_twice_do_no_harm(self, world: World) -> None:
        pod = world.new_pod()
        sandbox, container = await started(world, pod)
        for _ in range(2):
            await world.runtime.stop_container(container, 5)
            await world.runtime.stop_pod_sandbox(sandbox)
        for _ in range(2):
            await world.runtime.remove_container(container)
            await world.runtime.remove_pod_sandbox(sandbox)

    async def test_one_sandbox_or_container_alone_looks_as_it_does_among_all(self, world: World) -> None:
        pod = world.new_pod()
        sandbox_id, container_id = await started(world, pod)
        seen = await look(world, pod)
        sandbox = await world.runtime.inspect_sandbox(sandbox_id)
        container = await world.runtime.inspect_container(container_id, sandbox_id)
        assert sandbox is not None and container is not None
        assert replace(sandbox, pid=0) == replace(seen.sandboxes[0], pid=0)
        assert replace(container, pid=0) == replace(seen.containers[0], pid=0)
        absent = "0" * 64
        assert await world.runtime.inspect_sandbox(absent) is None
        assert await world.runtime.inspect_container(absent, sandbox_id) is None

    async def test_starting_or_stopping_what_is_not_there_is_not_found(self, world: World) -> None:
        absent = "0" * 64
        with pytest.raises(RuntimeCallError) as refusal:
            await world.runtime.start_container(absent)
        assert refusal.value.code == "NotFound"
        assert str(refusal.value).startswith("rpc error: code = NotFound desc = ")
        if self.is_containerd_2:
            await world.runtime.stop_container(absent, 2)
            return
        with pytest.raises(RuntimeCallError) as refusal:
            await world.runtime.stop_container(absent, 2)
        assert refusal.value.code == "NotFound"

    async def test_starting_twice_is_refused(self, world: World) -> None:
        pod = world.new_pod()
        _, container = await started(world, pod)
        with pytest.raises(RuntimeCallError) as refusal:
            await world.runtime.start_container(container)
        assert refusal.value.code == "Unknown"
        assert "CONTAINER_RUNNING" in str(refusal.value)

    async def test_a_container_in_an_unknown_sandbox_is_not_found(self, world: World) -> None:
        pod = world.new_pod()
        with pytest.raises(RuntimeCallError) as refusal:
            await world.runtime.create_container("0" * 64, world.container(pod), pod)
        assert refusal.value.code == "NotFound"

    async def test_a_container_of_an_absent_image_is_not_found_and_leaves_its_name_free(self, world: World) -> None:
        pod = world.new_pod()
        sandbox = await world.runtime.run_pod_sandbox(pod, "")
        absent = {**world.container(pod), "image": {"image": "localhost/absent:1"}}
        for _ in range(2):
            with pytest.raises(RuntimeCallError) as refusal:
                await world.runtime.create_container(sandbox, absent, pod)
            assert refusal.value.code == "NotFound"
        await world.runtime.create_container(sandbox, world.container(pod), pod)

    async def test_a_message_that_is_no_cri_is_an_invalid_argument(self, world: World) -> None:
        with pytest.raises(RuntimeCallError) as refusal:
            await world.runtime.run_pod_sandbox({**world.new_pod(), "no_such_field": 1}, "")
        assert refusal.value.code == "InvalidArgument"

    async def test_observing_everything_and_observing_one_pod_agree(self, world: World) -> None:
        pods = [world.new_pod(), world.new_pod()]
        for pod in pods:
            await started(world, pod)
        everything = await world.runtime.observe()
        for pod in pods:
            assert everything[pod["metadata"]["uid"]].same_content(await look(world, pod))

    async def test_an_image_is_present_or_not(self, world: World) -> None:
        present = await world.runtime.image_status(world.image)
        assert present is not None and present.id.startswith("sha256:")
        assert await world.runtime.image_status("localhost/absent:1") is None

    async def test_the_image_filesystem_has_a_mountpoint(self, world: World) -> None:
        (images, *_) = (await world.runtime.filesystems()).images
        assert images.mountpoint.startswith("/") and images.used is not None and images.used >= 0

    async def test_a_running_container_has_a_writable_layer(self, world: World) -> None:
        pod = world.new_pod()
        _, container = await started(world, pod)
        assert (await world.runtime.writable_layers())[container].mountpoint.startswith("/")
