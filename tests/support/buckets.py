"""An S3 bucket served by this process."""

from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest
from moto.server import ThreadedMotoServer


@contextmanager
def served_bucket() -> Iterator[str]:
    """Serve S3 on the loopback and yield the URL of an empty bucket; the environment says where it is, and a key."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            patch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
            boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="bucket")
            yield "s3://bucket"
        finally:
            server.stop()
