"""The command line: parse, call, print.

Exit codes: 0 done; 2 usage or bad input, with one line on stderr; 3 a release was refused because it would pass a
limit of its dataset; 4 an audit found a violation; 5 another process holds ticks, or was stopped with them; 130
interrupted.
"""

from csdp.cli.app import app, main

__all__ = ["app", "main"]
