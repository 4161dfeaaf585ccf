"""Test doubles and fixtures, for this project and for its users.

`broker` is a real broker in the test's own process, `plugin` has it as pytest fixtures, `faults` is
what can go wrong with it on demand. `disk` is a disk in memory that crashes, fails and fills up by
seed, `virtual_loop` an asyncio loop whose time passes only when nothing is left to do. `simulation`
has whole nodes and clients on hosts of their own, in virtual time and from one seed: `hosts`,
`network` and `simulated_node` are its parts. Import from the modules.
"""
