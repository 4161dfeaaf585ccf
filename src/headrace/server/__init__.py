"""From bytes to requests, and from responses to bytes.

`connection` reads frames, `dispatch` finds the handler, `request` is what a handler gets, and
`broker.Broker` is a handler's view of its node. This package knows no particular API.
"""
