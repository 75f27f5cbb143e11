"""Files that anybody may have written or may be reading. Needs no torch."""
