"""SWIM: which nodes can be reached, by gossip over UDP.

Gossip only speeds up suspicion. Only the metadata log fences a broker: the events of this package
are hints for the proposers of its entries.

`machine` is the pure machine and `shell` its UDP shell. Read `machine` first, then `beliefs`
(what nodes believe about each other) and `probing` (how they find out).

SWIM: Das, Gupta and Motivala, 2002. Lifeguard: Dadgar, Phillips and Currey, 2018.
"""
