"""The rights that requests need, beside the handlers: which API needs what is in `table`.

A rule looks at a request before its handler does. It lets it pass, refuses it as a whole, or takes
out what the client has no rights for and adds the rows for that to the response. Handlers know
nothing of it, except those of fetches, whose sessions remember what was asked for before.

Without an authorizer nothing of this is loaded. `guard` is what a node wraps its handlers in.
"""
