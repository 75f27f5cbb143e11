"""``python -m sdm_runtime.inspect`` is ``sdm-plan``."""

from sdm_runtime.inspect.cli import main

if __name__ == "__main__":
    main()
