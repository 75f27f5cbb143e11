"""A model, its optimizer and the steps of a training run, on one process or several."""
