"""Thin processes that connect the library to the wire; one folder a service."""
