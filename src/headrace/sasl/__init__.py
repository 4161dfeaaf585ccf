"""SASL mechanisms as Kafka speaks them: messages, cryptography and machines, for both sides. Pure.

`scram` holds what a client and a server of SCRAM share. The client's machines are in
`scram_client`, `plain` and `oauthbearer`. Nothing here opens a socket, reads a file or knows a
setting.
"""
