"""Contracts of the API server: requests for certificates, as a kubelet relies on them."""

import base64

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from shared.kube import paths
from shared.model.objects import Object
from tests.contracts.api_cluster import Cluster, contract, refused, version_of

_SECONDS = 30.0


def _body(cluster: Cluster, name: str) -> Object:
    attributes = (
        (NameOID.ORGANIZATION_NAME, "system:nodes"),
        (NameOID.COMMON_NAME, f"system:node:{cluster.node_name}"),
    )
    subject = x509.Name([x509.NameAttribute(kind, text) for kind, text in attributes])
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder(subject).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return {
        "metadata": {"name": f"{name}-{cluster.node_name}"},
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "key encipherment", "client auth"],
        },
    }


_PATH = paths.certificate_signing_requests("v1")


@contract
async def a_request_for_a_certificate_is_kept_as_sent_and_its_name_is_taken(cluster: Cluster) -> None:
    body = _body(cluster, "csr")
    made = await cluster.node.create(_PATH, body)
    assert made["metadata"]["uid"] and {k: made["spec"][k] for k in body["spec"]} == body["spec"]
    assert made["spec"]["username"] == f"system:node:{cluster.node_name}" and not made.get("status")
    assert (await refused(cluster.node.create(_PATH, body))).already_exists
    found = await cluster.node.get(f"{_PATH}/{body['metadata']['name']}")
    assert found["metadata"]["uid"] == made["metadata"]["uid"]


@contract
async def a_watch_of_one_request_shows_its_denial_and_deletion(cluster: Cluster) -> None:
    made = await cluster.node.create(_PATH, _body(cluster, "watched"))
    name = made["metadata"]["name"]
    query = {"fieldSelector": f"metadata.name={name}"}
    listed = await cluster.node.get(_PATH, query)
    assert [one["metadata"]["name"] for one in listed["items"]] == [name]
    await cluster.node.create(_PATH, _body(cluster, "other"))
    async with cluster.node.watch(_PATH, {**query, "resourceVersion": version_of(listed)}, timeout=_SECONDS) as events:
        condition = {"type": "Denied", "status": "True", "reason": "Test", "message": "no"}
        status = {"conditions": [condition]}
        await cluster.admin.update(f"{_PATH}/{name}/approval", {**made, "status": status})
        event = await anext(events)
        assert event.type == "MODIFIED" and event.object["status"]["conditions"][0]["type"] == "Denied"
        await cluster.admin.delete(f"{_PATH}/{name}")
        event = await anext(events)
        assert event.type == "DELETED" and event.object["metadata"]["uid"] == made["metadata"]["uid"]


@contract
async def the_version_is_shown(cluster: Cluster) -> None:
    found = await cluster.node.get(paths.VERSION)
    assert found["major"] == "1" and int(found["minor"].rstrip("+")) >= 18
