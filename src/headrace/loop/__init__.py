"""The ground of every part of a node: clock, counters, and fair shares of the event loop.

`turns` and `slices` bound the work of one turn, `inflating` keeps decompression off the loop, and
`watch` logs what stalls it anyway. `deadlines` is for any machine that has some.
"""
