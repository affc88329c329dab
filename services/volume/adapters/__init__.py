"""Does the I/O of volume on the kernel's mounts and the directories of pods."""
