"""One call of the operation: its checks, sizes, staged inputs and the bank it has borrowed."""
