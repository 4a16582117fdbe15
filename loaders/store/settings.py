"""Settings of the clients of stores on a network.

They are values that can be printed, compared and sent to another process. They contain no credentials on purpose: each
client finds its credentials on its own machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from ipaddress import ip_address
from typing import Literal, get_args
from urllib.parse import urlsplit

from loaders.errors import RequestRefused, redacted
from loaders.settings import CONNECTIONS, check_settings, plain_arguments

Client = Literal["boto3", "obstore"]

CA_VARIABLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Variables that name a file with certificates of authorities, by priority."""


def check_endpoint_url(url: str) -> None:
    """Check the URL of an endpoint.

    Raises:
        ValueError: it has no scheme, another scheme than http and https, no host, or an IPv6 address with a zone.
    """
    parts = urlsplit(url)
    if "%" in (parts.hostname or ""):
        expected = "expected a name, or an address without a zone, which no header Host and no certificate can have"
        raise ValueError(f"{expected}, found {redacted(url)!r}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        expected = "expected an endpoint with its scheme, such as http://localhost:9000 or https://host"
        raise ValueError(f"{expected}, found {redacted(url)!r}")


def is_loopback(url: str) -> bool:
    """Whether a URL is of this machine, so that requests to it never go through a proxy.

    >>> is_loopback("http://[::1]:9000"), is_loopback("http://localhost"), is_loopback("http://10.0.0.1")
    (True, True, False)
    """
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or host.endswith(".localhost") or ip_address(host).is_loopback
    except ValueError:
        return False


@plain_arguments(ValueError)
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoreSettings:
    """How to reach a store on a network: S3, Google Cloud Storage or Azure Blob Storage.

    The printed form contains no user and no password of the endpoint's URL. Settings of S3 that are None are read from
    AWS's configuration chain, as by every AWS tool: environment, profile, config files, container and instance roles,
    `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS`.

    Attributes:
        endpoint_url: an endpoint other than that of AWS, Google or Azure; None = from the configuration chain.
        no_sign_request: send requests without credentials, for public buckets.
        connections: connections kept open to the endpoint; use no more threads than that.
        attempts: total number of requests before an operation fails, with jittered exponential backoff between them.
            It replaces AWS_MAX_ATTEMPTS and AWS_RETRY_MODE, so that there is exactly one layer of retries of known
            size. A write with a condition is always sent once.
        connect_timeout_seconds: time to open a connection.
        read_timeout_seconds: longest silence in the middle of an answer.
        etag_quotes: whether the ETag of If-Match is sent with quotes, as S3 and the standard require. Ceph compares
            without quotes, so that a quoted ETag never matches.
        ca_bundle: a file with the certificates (PEM) of the authorities that sign the endpoint's; None = that which
            AWS_CA_BUNDLE, the profile (`ca_bundle`), REQUESTS_CA_BUNDLE or SSL_CERT_FILE name, in this order.
        client: S3 only, as all below: "boto3", or "obstore" (needs the extra `obstore`): the same requests with a
            quarter of the CPU time of a GET.
        profile: a profile of the AWS config files; None = from the configuration chain.
        region: None = from the configuration chain, otherwise us-east-1.
        path_style: whether the bucket is part of the path; None = from the configuration chain (`addressing_style`),
            and where that says nothing, yes for endpoints other than AWS, which often have no DNS name per bucket.
        completion_timeout_seconds: longest silence while the server joins the parts of an upload; large objects take
            some servers minutes.

    Raises:
        ValueError: an invalid endpoint, another client, or a number out of bounds.
    """

    endpoint_url: str | None = None
    no_sign_request: bool = False
    connections: int = CONNECTIONS
    attempts: int = 5
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 30.0
    etag_quotes: bool = True
    ca_bundle: str | None = None
    client: Client = "boto3"
    profile: str | None = None
    region: str | None = None
    path_style: bool | None = None
    completion_timeout_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.client not in get_args(Client):
            raise ValueError(f"expected client as one of {', '.join(get_args(Client))}, found {self.client!r}")
        check_settings(self)
        if self.endpoint_url is not None:
            check_endpoint_url(self.endpoint_url)

    def __repr__(self) -> str:
        values = (f"{setting.name}={redacted(repr(getattr(self, setting.name)))}" for setting in fields(self))
        return f"{type(self).__name__}({', '.join(values)})"

    def ca_file(self, of_profile: str | None = None) -> str | None:
        """The file with certificates that these settings, a profile or the environment name; None = the system's.

        Raises:
            RequestRefused: it does not exist.
        """
        path = self.ca_bundle or of_profile or next(filter(None, map(os.environ.get, CA_VARIABLES)), None)
        if path is not None and not os.access(path, os.R_OK):
            expected = f"expected a file with certificates (ca_bundle, {', '.join(CA_VARIABLES)})"
            raise RequestRefused("connect", path, f"{expected}, found none that can be read")
        return path

    def condition_etag(self, etag: str, quotes: bool | None = None) -> str:
        """An ETag in the form of this endpoint's If-Match; `quotes` takes precedence over the setting."""
        return f'"{etag}"' if (self.etag_quotes if quotes is None else quotes) else etag
