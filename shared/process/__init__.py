"""One process of the agent: its identity, limits and deadlines, its children, and what ends it when it hangs."""
