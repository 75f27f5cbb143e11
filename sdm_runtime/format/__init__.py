"""The wire format of plans and chains, in integers and bytes alone; as csrc/plancap/format."""
