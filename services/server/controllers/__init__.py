"""What server keeps between events: listeners, followed pods, health, reviews, and the handlers of requests."""
