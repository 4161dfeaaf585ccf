"""From bytes to requests, and from responses to bytes.

`connection` reads frames, `dispatch` finds the handler, `request` is what a handler answers, and
`broker.Broker` is what handlers see of their node. No API is known here.
"""
