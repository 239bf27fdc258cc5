"""The command line: parse options, call the library, print the result.

Exit codes: 0 done; 2 usage or bad input, with one line on stderr; 3 a release was refused because it would exceed a
limit of its dataset; 4 an audit found a violation; 6 hardly worth releasing; 130 interrupted.
"""

from csdp.cli.app import app, main

__all__ = ["app", "main"]
