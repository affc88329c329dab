"""Decides which CPUs, which NUMA nodes' memory and which devices belong to which container (node.md 4.10–4.12, 4.15).

All use the machine as `shared.model.machine_topology` has it, and `hint`. `cpu_choice` takes CPUs by topology
(`cpu_distribution`: in equal parts of NUMA nodes), `cpu_policy` and `memory_policy` are the two policies, `merging`
chooses one hint among theirs, `placing` places a whole pod. What is given to a pod's containers is a `PodPlacement`,
which is saved with the verdict on the pod; what is free follows from those of the active pods. `device_policy` chooses
devices, and has hints for them; `placing` does not ask it yet.
"""
