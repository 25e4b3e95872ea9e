"""Runs the official Event Hubs SDKs against `partita serve`. Python's standard library only."""
