"""``python -m sdm_runtime.inspect`` is ``sdm-plan``."""

from sdm_runtime.commands import plan

if __name__ == "__main__":
    plan()
