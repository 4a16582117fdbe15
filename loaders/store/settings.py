"""How to reach S3: a value that can be printed, compared and sent to another process.

What is left at its default is left to AWS's own configuration chain, as every AWS tool reads it: environment,
profile, config files, container and instance roles, `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`,
`AWS_IGNORE_CONFIGURED_ENDPOINT_URLS`. There is no place for credentials here on purpose: settings are printed and
travel to other machines, credentials are found where the client runs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args
from urllib.parse import urlsplit

from loaders.errors import redacted
from loaders.settings import check_settings

Client = Literal["boto3", "obstore"]


def check_endpoint_url(url: str) -> None:
    """Do nothing for the URL of an endpoint.

    Raises:
        ValueError: it has no scheme, another one than http and https, or no host.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        expected = "expected an endpoint with its scheme, such as http://localhost:9000 or https://host"
        raise ValueError(f"{expected}, found {redacted(url)!r}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class S3Settings:
    """How to reach S3. Printed, it shows no user and no password of the endpoint's URL.

    Attributes:
        client: "boto3", or "obstore" (needs the extra `obstore`): the same requests for a quarter of the CPU a GET.
        endpoint_url: an endpoint other than AWS; None = what the configuration chain says.
        profile: a profile of the AWS config files; None = what the configuration chain says.
        region: None = what the configuration chain says, else us-east-1.
        path_style: whether the bucket goes into the path; None = yes for endpoints other than AWS, which often have
            no DNS name per bucket, and for AWS what the configuration chain says (virtual-hosted by default).
        no_sign_request: send requests without credentials, for public buckets.
        connections: connections kept open to the endpoint; use no more threads than that.
        attempts: requests in all before an operation fails, with jittered exponential backoff between them. It
            replaces AWS_MAX_ATTEMPTS and AWS_RETRY_MODE, so that there is exactly one layer of retries of known size.
            A write with a condition is sent once, whatever this says.
        connect_timeout_seconds: time to open a connection.
        read_timeout_seconds: longest silence in the middle of an answer.
        etag_quotes: whether the endpoint wants quotes around the ETag of If-Match. S3 and the standard do; Ceph
            compares without, and there a quoted ETag never matches.
    """

    client: Client = "boto3"
    endpoint_url: str | None = None
    profile: str | None = None
    region: str | None = None
    path_style: bool | None = None
    no_sign_request: bool = False
    connections: int = 64
    attempts: int = 5
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 30.0
    etag_quotes: bool = True

    def __post_init__(self) -> None:
        if self.client not in get_args(Client):
            raise ValueError(f"expected client as one of {', '.join(get_args(Client))}, found {self.client!r}")
        if self.endpoint_url is not None:
            check_endpoint_url(self.endpoint_url)
        check_settings(self)

    def __repr__(self) -> str:
        values = (f"{setting.name}={redacted(repr(getattr(self, setting.name)))}" for setting in fields(self))
        return f"{type(self).__name__}({', '.join(values)})"

    def condition_etag(self, etag: str, quotes: bool | None = None) -> str:
        """An ETag as this endpoint wants it in If-Match; `quotes` wins over the setting."""
        return f'"{etag}"' if (self.etag_quotes if quotes is None else quotes) else etag
