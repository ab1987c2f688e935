"""Which layout a model fills holes best in: measured on holes whose text is known.

A hole is scored under every variant of layout, boundary and healing (`scoring`), a rule that was
fixed beforehand names the layout (`choice`), and a profile keeps it for `serve` (`profile`).
"""
