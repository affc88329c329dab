"""Contents of checkpoint files that Go kubelets have written, and those of the vectors of node.md 4.14."""

CPU = {
    "policy none": b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}',
    "nothing given out": b'{"policyName":"static","defaultCpuSet":"0-27","checksum":273146150}',
    "strict reservation": b'{"policyName":"static","defaultCpuSet":"1,3-15,17,19-31","checksum":1902567528}',
    "two pods": b'{"policyName":"static","defaultCpuSet":"0,13","entries":{'
    b'"55784671-0e4e-49e2-b4d6-c0377ca14c81":{"app":"1-12"},"6c5f3038-adfc-485d-9943-3fd5e825300d":{"app":"14-27"}},'
    b'"checksum":3558029577}',
    "vector": b'{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},'
    b'"checksum":3610638499}',
}
CPU_WITH_OTHER_TYPE_NAMES = {
    "V2": b'{"policyName":"static","defaultCpuSet":"7-9","entries":{"pod":{"container1":"4-6","container2":"1-3"}},'
    b'"checksum":1942532442}',
    "V3": b'{"policyName":"static","defaultCpuSet":"1-2","entries":{"pod1":{"container1":"5-6","container2":"3-4"}},'
    b'"podEntries":{"pod2":{"cpuSet":"7-9"}},"checksum":2284712151}',
}
_NODE = (
    b'"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,'
    b'"reserved":512,"free":1024}},"cells":[]}'
)
_BLOCK = b'[{"numaAffinity":[0],"type":"memory","size":512}]'
MEMORY = {
    "policy None": b'{"policyName":"None","machineState":{},"checksum":4236770233}',
    "vector": b'{"policyName":"static","machineState":{'
    + _NODE
    + b'},"entries":{"pod":{"container1":'
    + _BLOCK
    + b'}},"checksum":4215593881}',
    "a pod as a whole": b'{"policyName":"static","machineState":{'
    + _NODE
    + b'},"entries":{"pod":{"container1":'
    + _BLOCK
    + b'}},"podEntries":{"pod":{"memoryBlocks":'
    + _BLOCK
    + b'}},"checksum":1278640530}',
}
DEVICES = {
    "no node": b'{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check",'
    b'"ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},'
    b'"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],'
    b'"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}',
    "node 1": b'{"Data":{"PodDeviceEntries":[{"PodUID":"9a15d2b5-c152-46b9-96e0-d57032629e1f","ContainerName":"app",'
    b'"ResourceName":"nvidia.com/gpu","DeviceIDs":{"1":["GPU-9b341c59-f96b-ba85-c137-78c3652fea65",'
    b'"GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]},"AllocResp":"CmsKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSUUdQVS1jMWU5ZjI0OS1'
    b"iMzdiLTgxYzItYThkOS1iYTVjYTAyOTQ4NDEsR1BVLTliMzQxYzU5LWY5NmItYmE4NS1jMTM3LTc4YzM2NTJmZWE2NRokCg4vZGV2L252aWRpYWN"
    b"0bBIOL2Rldi9udmlkaWFjdGwaAnJ3GiYKDy9kZXYvbnZpZGlhLXV2bRIPL2Rldi9udmlkaWEtdXZtGgJydxoyChUvZGV2L252aWRpYS11dm0tdG9"
    b"vbHMSFS9kZXYvbnZpZGlhLXV2bS10b29scxoCcncaLgoTL2Rldi9udmlkaWEtbW9kZXNldBITL2Rldi9udmlkaWEtbW9kZXNldBoCcncaIAoML2R"
    b'ldi9udmlkaWExEgwvZGV2L252aWRpYTEaAnJ3GiAKDC9kZXYvbnZpZGlhMhIML2Rldi9udmlkaWEyGgJydw=="}],"RegisteredDevices":{'
    b'"nvidia.com/gpu":["GPU-77a702db-e37f-3a74-d46d-c5713f66058c","GPU-9b341c59-f96b-ba85-c137-78c3652fea65",'
    b'"GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]}},"Checksum":2530956716}',
}
