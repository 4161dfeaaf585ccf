"""What every part of a node runs on: its clock, its counters, and fair shares of its event loop.

`turns` and `slices` bound what one client may ask of a turn, `inflating` keeps codecs off the loop,
and `watch` logs what holds it up all the same.
"""
