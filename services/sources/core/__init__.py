"""Pure decisions of sources: what a manifest says, which pod each file stands for, what changed in the desired set."""
