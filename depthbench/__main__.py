"""`python -m depthbench` is the `depthbench` command."""

from depthbench.cli import main

if __name__ == "__main__":
    main()
