"""`bulkhead what-if` shows what would become of the pods of files on this node. Starts nothing."""
