"""The NAT rules of pods of one network are told from all others, and removed together with the chains of the pods."""

from shared.host.address_translation import render_removal

MASQUERADED = [
    '-A POSTROUTING -s 10.89.0.3/32 -m comment --comment "name: \\"pods0\\" id: \\"feed\\"" -j CNI-a3aa',
    '-A CNI-a3aa -d 10.89.0.0/16 -m comment --comment "name: \\"pods0\\" id: \\"feed\\"" -j ACCEPT',
    '-A CNI-a3aa ! -d 224.0.0.0/4 -m comment --comment "name: \\"pods0\\" id: \\"feed\\"" -j MASQUERADE',
]
HOST_PORT = '-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \\"pods0\\" id: \\"feed\\"" -j CNI-DN-a3aa'


def test_a_pods_rules_go_with_its_chains_in_one_change() -> None:
    assert render_removal([*MASQUERADED, HOST_PORT]).splitlines() == [
        "*nat",
        f"-D{MASQUERADED[0].removeprefix('-A')}",
        f"-D{HOST_PORT.removeprefix('-A')}",
        "-F CNI-DN-a3aa",
        "-F CNI-a3aa",
        "-X CNI-DN-a3aa",
        "-X CNI-a3aa",
        "COMMIT",
    ]


def test_a_chain_of_a_pod_to_which_no_rule_leads_goes_as_well() -> None:
    assert render_removal(MASQUERADED[1:]).splitlines() == ["*nat", "-F CNI-a3aa", "-X CNI-a3aa", "COMMIT"]
