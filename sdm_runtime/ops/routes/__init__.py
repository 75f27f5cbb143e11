"""How a pass runs its steps: chains that are recorded once and bound again."""
