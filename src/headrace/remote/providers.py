"""obstore's own stores, opened by URL and options.

What an option does not say comes from the environment: AWS_*, GOOGLE_*, AZURE_*, as the providers'
tools read it, or from the role of the machine.
"""

import os
from datetime import timedelta
from typing import Any, TypeAlias

from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from headrace.remote.store_options import StoreOptions, StoreUrl

Native: TypeAlias = S3Store | GCSStore | AzureStore | MemoryStore


def open_native(url: StoreUrl, options: StoreOptions) -> Native:
    """Return obstore's store; it raises its own errors if the options make no sense."""
    if url.scheme == "memory":
        return MemoryStore()
    shared: dict[str, Any] = {
        "prefix": url.path or None,
        "client_options": {
            "allow_http": options.allow_http or _allows_http(url.scheme),
            "connect_timeout": timedelta(milliseconds=options.connect_timeout_ms),
            "timeout": timedelta(milliseconds=options.request_timeout_ms),
            "user_agent": "headrace",
        },
        "retry_config": {
            "max_retries": options.attempts - 1,
            "retry_timeout": timedelta(milliseconds=options.request_timeout_ms * options.attempts),
        },
    }
    if url.scheme == "gs":
        return GCSStore(
            url.bucket,
            **_set(base_url=options.endpoint, service_account=options.secret_access_key),
            **shared,
        )
    if url.scheme == "az":
        return AzureStore(
            url.bucket,
            **_set(
                endpoint=options.endpoint,
                account_name=options.access_key_id,
                account_key=options.secret_access_key,
            ),
            **shared,
        )
    return S3Store(
        url.bucket,
        **_set(
            endpoint=options.endpoint,
            region=options.region,
            access_key_id=options.access_key_id,
            secret_access_key=options.secret_access_key,
            session_token=options.session_token,
        ),
        **shared,
    )


def _allows_http(scheme: str) -> bool:
    """Return whether the environment allows unencrypted requests, as obstore would read it."""
    name = {"s3": "AWS_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}.get(scheme, "")
    return os.environ.get(name, "").lower() in ("1", "true")


def _set(**values: str | None) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
