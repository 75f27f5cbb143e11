"""The operation as torch's operators: for graphs, fake tensors and tensors without memory."""
