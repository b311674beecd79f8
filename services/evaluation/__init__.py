"""Policies evaluated through the real policy server: what ./twin eval runs in its worker processes."""
