"""How results look in a notebook, for `csdp.display`."""
