"""TLS, SASL and ACLs of client listeners: machines and policies. No handler knows how.

`tls`, `key_stores` and `certificates` make and renew the contexts of listeners, `certificate_names`
turns a client's certificate into a principal. `authentication` is the exchange of one connection,
with the mechanisms beside it. `authorizer` decides over ACLs as Kafka's StandardAuthorizer does.
What requests need is a table in `server.rights`.
"""
