"""``python -m rooflinesim``."""

from rooflinesim.cli import main

if __name__ == "__main__":
    main()
