"""Reads and writes the contents of the Go kubelet's checkpoint files (node.md 4.14), byte for byte, and compares them
with the configuration and the machine.

`go_types` has Go's types with their JSON and the dump that a checksum covers; `checksums` has what is wrong with a
file. `cpu_state`, `memory_state`, `device_state` and `dra_state` are one file each; `checked_value` has what the
first two have in common, and no process reads or writes the last one yet. `start_checks` decides whether an agent
starts with the first two, `takeover` which placements follow from them, and `device_takeover` which from the third.
"""
