"""Test doubles and fixtures, for this project and for its users.

`broker` is a real broker in the test's own process, `plugin` offers it as pytest fixtures, `faults`
injects faults into it. `disk` is an in-memory disk that crashes, fails and fills up by seed,
`store` an object store that fails, lags and goes away by seed, `virtual_loop` an asyncio loop whose
time passes only when nothing is left to do. `simulation` runs whole nodes and clients on separate
hosts, in virtual time and from one seed: `hosts`, `network` and `simulated_node` are its parts.
Import from the modules.
"""
