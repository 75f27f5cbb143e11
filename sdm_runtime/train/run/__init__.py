"""``sdm-train``: options, sessions, and the two kinds of run."""
