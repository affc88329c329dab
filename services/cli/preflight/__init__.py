"""`bulkhead preflight` examines whether this agent would run the pods of the node. Changes nothing."""
