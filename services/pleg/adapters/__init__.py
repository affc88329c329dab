"""Reaches the kernel: pidfds, /proc, cgroups, filesystems. The runtime is reached through `shared.cri`."""
