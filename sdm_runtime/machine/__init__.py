"""What this build and this machine can run."""
