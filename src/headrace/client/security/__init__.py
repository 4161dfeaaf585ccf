"""How clients protect their connections: TLS, SASL, and the settings for both by Kafka's names.

    ClientSecurity.of({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
                       "sasl.username": "ann", "sasl.password": "...", "ssl.ca.location": "ca.pem"})

`settings` has the frozen values, `parsing` and `names` read them, `tls` makes OpenSSL's context,
`tokens` gets OAuth tokens and `authentication` runs the exchange on a connection.
"""
