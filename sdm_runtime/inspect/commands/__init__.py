"""``sdm-plan``. Needs no torch."""
