"""Speaking to the API server: the interface, the client over HTTP, the credentials that bootstrap resolved."""
