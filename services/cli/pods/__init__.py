"""Lists, describes, applies and deletes the pods of this node, shows their logs, and runs commands in their
containers."""
