"""Reads and writes the contents of the Go kubelet's checkpoint files for CPUs, memory and devices (node.md 4.14), byte
for byte, and compares them with the configuration and the machine.

`cpu_state`, `memory_state` and `device_state` are one file each; `checked_value` has what the first two have in common.
`start_checks` decides whether an agent starts with the first two, and `start_conflicts` what a conflict costs where
only podsync starts again. `takeover` decides which placements follow from them, and `device_takeover` which from the
third. What all files of the Go kubelet have in common is `shared/go_checkpoints`.
"""
