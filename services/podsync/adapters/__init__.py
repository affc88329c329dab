"""How podsync's instructions are done: runtime calls, cgroups, directories, checkpoint, story."""
