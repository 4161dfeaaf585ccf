"""SWIM: which nodes can be reached, by gossip over UDP.

What is said here only shortens suspicion. Only the metadata log fences a broker: the events of this
package are hints for those who propose entries there.

`machine` is the pure machine and `shell` its UDP shell. Read `machine` first, then `beliefs`
(what nodes hold true of each other) and `probing` (how they find out).

SWIM: Das, Gupta and Motivala, 2002. Lifeguard: Dadgar, Phillips and Currey, 2018.
"""
