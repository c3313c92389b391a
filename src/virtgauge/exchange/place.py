"""Where an archive is: a folder, or a prefix of a bucket in an object store that speaks S3."""

from __future__ import annotations

import dataclasses
import os
import urllib.parse
from pathlib import Path

from pyarrow import fs

from virtgauge.errors import UsageError
from virtgauge.ledger.files import is_regular

_LONGEST_ENTRY = 4 * 2**20  # Bytes
ENDPOINT_VARIABLES = ("VIRTGAUGE_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


@dataclasses.dataclass(frozen=True)
class Place:
    """An archive's file system and the path of its root in it."""

    name: str
    files: fs.FileSystem
    root: str

    @property
    def is_store(self) -> bool:
        return not isinstance(self.files, fs.LocalFileSystem)

    def path(self, *parts: str) -> str:
        return "/".join((self.root, *parts))

    def read(self, path: str) -> bytes:
        """A small object, whole. Raises ValueError: it is none."""
        self.require_file(path)
        with self.files.open_input_stream(path) as stream:
            content = bytes(stream.read(_LONGEST_ENTRY + 1))
        if len(content) > _LONGEST_ENTRY:
            raise ValueError(f"longer than {_LONGEST_ENTRY >> 20} MiB")
        return content

    def write(self, path: str, content: bytes) -> None:
        """A small object in one step: a reader sees what was there before, or all of this."""
        if not self.is_store:
            partial = Path(path + ".partial")
            partial.unlink(missing_ok=True)  # a link would be written through
            try:
                partial.write_bytes(content)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
            return
        with self.files.open_output_stream(path) as stream:
            stream.write(content)

    def require_file(self, path: str) -> None:
        """Raise ValueError where a pipe would be waited for, a device be read, or a link lead elsewhere."""
        if not self.is_store and is_regular(Path(path)) is False:
            raise ValueError(f"{path} is no file")

    def found(self, folder: str) -> list[str]:
        """The paths of the files below a folder; none where it does not exist."""
        selector = fs.FileSelector(self.path(folder), recursive=True, allow_not_found=True)
        return sorted(one.path for one in self.files.get_file_info(selector) if one.type is fs.FileType.File)


def open_place(location: str, *, endpoint: str | None = None, region: str | None = None) -> Place:
    """The place that a user names: a folder, or ``s3://bucket/prefix``.
    Raises UsageError: the address is none, or of a kind that is not known.

    The endpoint is that of an object store that is not Amazon's (``http://127.0.0.1:9000``), by default that of the
    environment (:data:`ENDPOINT_VARIABLES`).  Keys come from the environment, as AWS's own tools take them.
    """
    if "://" not in location:
        return Place(location, fs.LocalFileSystem(), str(Path(location).resolve()))
    address = urllib.parse.urlsplit(location)
    if address.scheme != "s3" or not address.netloc or address.query or address.username:
        raise UsageError(f"{location}: is no place for an archive", "name a folder, or s3://bucket/prefix")
    endpoint = endpoint or next((os.environ[name] for name in ENDPOINT_VARIABLES if os.environ.get(name)), None)
    options: dict[str, str] = {}
    if endpoint is not None:
        scheme, separator, host = endpoint.partition("://")
        if not separator or scheme not in ("http", "https") or not host.strip("/"):
            raise UsageError(f"--endpoint {endpoint}: is no address", "write http://HOST:PORT or https://HOST:PORT")
        options = {"endpoint_override": host.rstrip("/"), "scheme": scheme}
    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region or endpoint:
        options["region"] = region or "us-east-1"  # asking the store for it, as is done else, needs Amazon's
    try:
        files = fs.S3FileSystem(connect_timeout=10, request_timeout=60, **options)
    except (OSError, ValueError) as error:
        raise UsageError(f"{location}: {error}", "check the endpoint and the keys in the environment") from error
    return Place(location, files, f"{address.netloc}{address.path}".rstrip("/"))
