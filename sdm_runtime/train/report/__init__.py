"""What a run leaves to be read: JSON, plots and the plan report."""
