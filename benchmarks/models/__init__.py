"""The benchmark's networks."""
