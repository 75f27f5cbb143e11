"""Plans, and chains of plans."""
