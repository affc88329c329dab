"""Keeps the state of server between events: listeners, followed pods, health, reviews, and the handlers of requests."""
