"""The operation as autograd sees it."""
