"""What pleg keeps between events: relists, looks, process watches and probes."""
