"""How status reaches the outside. Empty while there is no API server to write to."""
