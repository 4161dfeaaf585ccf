"""Settings of a node's HTTP pages: where they are, how they are protected, and who may read them.

The pages are a listener named HTTP: with SSL its key and certificates are those of `ssl.*`, or of
`listener.name.http.ssl.*` where they differ from those of Kafka's listeners.
"""

from typing import Final

from headrace.config.setting import choice, string, words
from headrace.config.values import address

PAGES: Final = "HTTP"
"""The name of the pages among the listeners."""
ANY_HOST: Final = "*"
LOGIN_NONE: Final = "none"
LOGIN_PASSWORD: Final = "password"
LOGIN_CERTIFICATE: Final = "certificate"


HTTP_LISTEN: Final = string(
    "http.listen",
    "127.0.0.1:9094",
    "The address of the HTTP pages, as HOST:PORT; port 0 means any free port, empty means off.",
    read=address,
    allowed="HOST:PORT or nothing",
)
HTTP_SECURITY_PROTOCOL: Final = choice(
    "headrace.http.security.protocol",
    "PLAINTEXT",
    "Whether the HTTP pages are encrypted: PLAINTEXT or SSL.",
    of=("PLAINTEXT", "SSL"),
)
HTTP_LOGIN: Final = choice(
    "headrace.http.login",
    LOGIN_NONE,
    "Who may read the HTTP pages: everybody, users with the password of their SCRAM credential, "
    "or clients with a certificate (listener.name.http.ssl.client.auth=required). /healthz and "
    "/readyz need no login, and without one say no reasons.",
    of=(LOGIN_NONE, LOGIN_PASSWORD, LOGIN_CERTIFICATE),
)
HTTP_HOSTS: Final = words(
    "headrace.http.hosts",
    (),
    "The names, beside localhost, addresses and that of http.listen, by which browsers may ask for "
    f"pages that need no login; {ANY_HOST} for any.",
)

PROTECTION: Final = (HTTP_SECURITY_PROTOCOL, HTTP_LOGIN, HTTP_HOSTS)
"""Who may read the pages, and how: what needs `http.listen`."""
