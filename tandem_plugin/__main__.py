"""``python -m tandem_plugin``: the command ``tandem``."""

from tandem_plugin.cli import main

if __name__ == "__main__":
    main()
