"""Plans, chains of plans, and their files.

``format`` is the generated mirror of the wire format; it, ``records`` and ``files`` need no torch.
"""
