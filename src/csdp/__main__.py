"""`python -m csdp`: the same as the command `csdp`."""

from csdp.cli import main

if __name__ == "__main__":
    main()
