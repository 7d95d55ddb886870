"""Shared fixtures and hypothesis profiles."""
