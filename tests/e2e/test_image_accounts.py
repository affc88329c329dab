"""A credential plugin that is asked with tokens of service accounts, on a real cluster."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from shared.model.objects import Object
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import PLANE, container, pod_of, status_of
from tests.support.clusters.cluster import Cluster
from tests.support.runtime.plugin_scripts import answering, asked, plugin_flags, write_plugin
from tests.support.runtime.registry import Registry, password

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

RBAC = "rbac.authorization.k8s.io"
OPT_IN = "example.com/pull"


async def create_accounts(cluster: Cluster) -> None:
    """One that opts in to the plugin and one that does not; nodes may read both, as with a newer API server."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    for name, annotations in (("robot", {OPT_IN: "yes", "other": "kept from it"}), ("plain", {})):
        metadata = {"name": name, "namespace": "default", "annotations": annotations}
        await cluster.plane.admin.create(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    rules = [{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get"]}]
    head: Object = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "nodes-read-accounts"}}
    path = f"/apis/{RBAC}/v1"
    await cluster.plane.admin.create(f"{path}/clusterroles", {**head, "kind": "ClusterRole", "rules": rules})
    binding = {
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "nodes-read-accounts"},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:nodes"}],
    }
    await cluster.plane.admin.create(f"{path}/clusterrolebindings", {**head, "kind": "ClusterRoleBinding", **binding})


def claims(token: str) -> dict[str, Any]:
    """The claims of the token."""
    payload = token.split(".")[1]
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return decoded


async def test_the_token_of_the_pods_service_account_opens_the_registry(tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    with Registry(tmp_path / "registry", users=True) as registry:
        image = registry.push("accounts/app:1")
        auth = {registry.address: {"username": "bob", "password": password("bob")}}
        write_plugin(plugins, "accounts", answering(auth))
        token = {"serviceAccountTokenAudience": "registry.test", "cacheType": "ServiceAccount"}
        token |= {"requireServiceAccount": True, "requiredServiceAccountAnnotationKeys": [OPT_IN]}  # type: ignore[dict-item]
        provider = {"name": "accounts", "matchImages": [registry.address], "tokenAttributes": token}
        async with Cluster(tmp_path, plane=PLANE, flags=plugin_flags(plugins, provider)) as cluster:
            await create_accounts(cluster)

            async def create(name: str, account: str) -> None:
                own: Object = {"serviceAccountName": account, "automountServiceAccountToken": False, "nodeName": NODE}
                await cluster.create(pod_of(name, container("c", image=image), **own))

            await create("one", "robot")
            await cluster.wait_ready("one")
            (request,) = asked(plugins, "accounts")
            assert request["serviceAccountAnnotations"] == {OPT_IN: "yes"}
            assert request["image"] == image.rpartition(":")[0]
            decoded = claims(request["serviceAccountToken"])
            assert (decoded["aud"], decoded["sub"]) == (["registry.test"], "system:serviceaccount:default:robot")
            assert decoded["kubernetes.io"]["pod"]["name"] == "one"

            await create("two", "robot")
            await create("thief", "plain")
            await cluster.wait_ready("two")
            assert len(asked(plugins, "accounts")) == 1, "the answer for this account is kept"

            def waits(pod: Object) -> bool:
                reason = status_of(pod, "c").get("state", {}).get("waiting", {}).get("reason")
                return reason in ("ErrImagePull", "ImagePullBackOff")

            await cluster.wait_pod("thief", waits, "to be refused")
            directory = cluster.agent.home.path / "kubelet/image_manager/pulled"
            records = [json.loads(path.read_text()) for path in directory.glob("sha256-*")]
            (access,) = [record["credentialMapping"][image.rpartition(":")[0]] for record in records]
            assert [one["name"] for one in access["kubernetesServiceAccounts"]] == ["robot"]
            logs = "".join(cluster.agent.log_of(service) for service in cluster.agent.beats)
            assert request["serviceAccountToken"] not in logs
            assert password("bob") not in logs
