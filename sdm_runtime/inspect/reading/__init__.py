"""Plan and trace files as Python values. Needs neither torch nor the extension."""
