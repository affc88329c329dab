"""How volume reaches the kernel's mounts and the directories of pods."""
