"""CRI v1 in front of Docker: each method of RuntimeService and ImageService, by name."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from cri_api.v1 import api_pb2

from services.dockershim.adapters.engine import Engine
from services.dockershim.adapters.network import Networks
from services.dockershim.controllers.commands import Commands
from services.dockershim.controllers.containers import Containers
from services.dockershim.controllers.images import Images
from services.dockershim.controllers.sandboxes import Sandboxes
from services.dockershim.core.cni_requests import NetworkConfigurationError
from services.dockershim.core.errors import CallError
from shared.plugin_grpc.serving import CallRefusedError, Method

RUNTIME_NAME = "docker"
_CRI_VERSION = "v1"


class RuntimeService:
    """Translates messages; what they do is in the parts."""

    def __init__(
        self,
        engine: Engine,
        networks: Networks,
        sandboxes: Sandboxes,
        containers: Containers,
        images: Images,
        commands: Commands,
    ) -> None:
        self._engine, self._networks = engine, networks
        self._sandboxes, self._containers, self._images, self._commands = sandboxes, containers, images, commands

    def services(self) -> dict[str, dict[str, Method]]:
        """Return the methods by name by service. What is not here is answered with Unimplemented by gRPC."""
        runtime = {
            "Version": Method(api_pb2.VersionRequest, _refusing(self._version)),
            "Status": Method(api_pb2.StatusRequest, _refusing(self._status)),
            "RuntimeConfig": Method(api_pb2.RuntimeConfigRequest, _refusing(self._runtime_config)),
            "UpdateRuntimeConfig": Method(
                api_pb2.UpdateRuntimeConfigRequest, _answering(api_pb2.UpdateRuntimeConfigResponse, _accept)
            ),
            "RunPodSandbox": Method(api_pb2.RunPodSandboxRequest, _refusing(self._run_pod_sandbox)),
            "StopPodSandbox": Method(
                api_pb2.StopPodSandboxRequest,
                _answering(api_pb2.StopPodSandboxResponse, lambda r: self._sandboxes.stop(r.pod_sandbox_id)),
            ),
            "RemovePodSandbox": Method(
                api_pb2.RemovePodSandboxRequest,
                _answering(api_pb2.RemovePodSandboxResponse, lambda r: self._sandboxes.remove(r.pod_sandbox_id)),
            ),
            "PodSandboxStatus": Method(
                api_pb2.PodSandboxStatusRequest,
                _refusing(lambda r: self._sandboxes.status(r.pod_sandbox_id, r.verbose)),
            ),
            "ListPodSandbox": Method(
                api_pb2.ListPodSandboxRequest, _refusing(lambda r: self._sandboxes.list(r.filter))
            ),
            "CreateContainer": Method(api_pb2.CreateContainerRequest, _refusing(self._create_container)),
            "StartContainer": Method(
                api_pb2.StartContainerRequest,
                _answering(api_pb2.StartContainerResponse, lambda r: self._containers.start(r.container_id)),
            ),
            "StopContainer": Method(
                api_pb2.StopContainerRequest,
                _answering(api_pb2.StopContainerResponse, lambda r: self._containers.stop(r.container_id, r.timeout)),
            ),
            "RemoveContainer": Method(
                api_pb2.RemoveContainerRequest,
                _answering(api_pb2.RemoveContainerResponse, lambda r: self._containers.remove(r.container_id)),
            ),
            "ListContainers": Method(
                api_pb2.ListContainersRequest, _refusing(lambda r: self._containers.list(r.filter))
            ),
            "ContainerStatus": Method(
                api_pb2.ContainerStatusRequest,
                _refusing(lambda r: self._containers.status(r.container_id, r.verbose)),
            ),
            "UpdateContainerResources": Method(
                api_pb2.UpdateContainerResourcesRequest,
                _answering(
                    api_pb2.UpdateContainerResourcesResponse,
                    lambda r: self._containers.update(r.container_id, r.linux),
                ),
            ),
            "ReopenContainerLog": Method(
                api_pb2.ReopenContainerLogRequest,
                _answering(api_pb2.ReopenContainerLogResponse, lambda r: self._containers.reopen_log(r.container_id)),
            ),
            "ListContainerStats": Method(api_pb2.ListContainerStatsRequest, _refusing(self._list_container_stats)),
            "ExecSync": Method(api_pb2.ExecSyncRequest, _refusing(self._commands.exec_sync)),
            "Exec": Method(api_pb2.ExecRequest, _refusing(self._commands.exec)),
            "Attach": Method(api_pb2.AttachRequest, _refusing(self._commands.attach)),
            "PortForward": Method(api_pb2.PortForwardRequest, _refusing(self._commands.port_forward)),
        }
        images = {
            "ListImages": Method(api_pb2.ListImagesRequest, _refusing(lambda r: self._images.list(r.filter))),
            "ImageStatus": Method(api_pb2.ImageStatusRequest, _refusing(lambda r: self._images.status(r.image.image))),
            "PullImage": Method(
                api_pb2.PullImageRequest, _refusing(lambda r: self._images.pull(r.image.image, r.auth))
            ),
            "RemoveImage": Method(
                api_pb2.RemoveImageRequest,
                _answering(api_pb2.RemoveImageResponse, lambda r: self._images.remove(r.image.image)),
            ),
            "ImageFsInfo": Method(api_pb2.ImageFsInfoRequest, _refusing(lambda _: self._images.filesystem())),
        }
        return {"runtime.v1.RuntimeService": runtime, "runtime.v1.ImageService": images}

    async def _version(self, request: Any) -> Any:
        version = await self._engine.version()
        return api_pb2.VersionResponse(
            version=request.version,
            runtime_name=RUNTIME_NAME,
            runtime_version=version["Version"],
            runtime_api_version=_CRI_VERSION,
        )

    async def _status(self, _: Any) -> Any:
        response = api_pb2.StatusResponse()
        try:
            await self._engine.version()
            response.status.conditions.add(type="RuntimeReady", status=True)
        except CallError as error:
            response.status.conditions.add(
                type="RuntimeReady", status=False, reason="DockerNotReady", message=str(error)
            )
        try:
            await asyncio.to_thread(self._networks.configured)
            response.status.conditions.add(type="NetworkReady", status=True)
        except NetworkConfigurationError as error:
            response.status.conditions.add(
                type="NetworkReady", status=False, reason="NetworkPluginNotReady", message=str(error)
            )
        return response

    async def _runtime_config(self, _: Any) -> Any:
        response = api_pb2.RuntimeConfigResponse()
        driver = (await self._engine.info()).get("CgroupDriver")
        response.linux.cgroup_driver = api_pb2.SYSTEMD if driver == "systemd" else api_pb2.CGROUPFS
        return response

    async def _run_pod_sandbox(self, request: Any) -> Any:
        sandbox_id = await self._sandboxes.run(request.config, request.runtime_handler)
        return api_pb2.RunPodSandboxResponse(pod_sandbox_id=sandbox_id)

    async def _create_container(self, request: Any) -> Any:
        made = await self._containers.create(request.pod_sandbox_id, request.config, request.sandbox_config)
        return api_pb2.CreateContainerResponse(container_id=made)

    async def _list_container_stats(self, _: Any) -> Any:
        listed = await self._containers.list(api_pb2.ContainerFilter())
        return await self._images.stats(frozenset(container.id for container in listed.containers))


def _refusing(handle: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    """Return the handler with the errors of the server."""

    async def answer(request: Any) -> Any:
        try:
            return await handle(request)
        except CallError as error:
            raise CallRefusedError(error.code, str(error)) from None

    return answer


def _answering(kind: type[Any], act: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[Any]]:
    """Return a handler whose answer has no fields."""

    async def answer(request: Any) -> Any:
        await act(request)
        return kind()

    return _refusing(answer)


async def _accept(_: Any) -> None:
    """Take the addresses for pods, which CNI's configurations have themselves."""
