"""Variables of Services whose ports are not as the API has them."""

import pytest

from services.podsync.core.cri.service_environment import service_environment
from shared.model.objects import Object


def a_service(*ports: object) -> Object:
    return {"metadata": {"name": "db", "namespace": "shop"}, "spec": {"clusterIP": "10.0.0.7", "ports": list(ports)}}


@pytest.mark.parametrize("odd", [{"name": "web"}, "80", None])
def test_a_port_without_a_number_is_left_out(odd: object) -> None:
    given = service_environment([a_service(odd, {"port": 5432})], "shop", links=True)
    assert given["DB_SERVICE_PORT"] == "5432"
    assert given == service_environment([a_service({"port": 5432})], "shop", links=True)
    assert service_environment([a_service(odd)], "shop", links=True) == {}
