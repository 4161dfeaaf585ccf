"""The metadata log's entries, the image that they make, and the applier between the two.

    applier = Applier(load_snapshot(data) if data else Image())
    outcomes = applier.apply(committed)         # [(index, bytes), ...] as Raft commits them
    applier.image.topic(name)                   # what every handler reads

Everything here is pure: no loop, clock, randomness or file. Whatever depends on a clock or on
chance is decided by the proposer and carried in the entry. Import from the modules.
"""
