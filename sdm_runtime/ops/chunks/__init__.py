"""The work on whole chunks that needs no bank, before and after the steps."""
