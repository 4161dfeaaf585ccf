"""The transactions of a producer (KIP-98, KIP-447, KIP-890).

`states` is what may follow what (pure), `requests` what is asked of coordinators, `producer` both
together, `transaction` what users enter and leave.
"""
