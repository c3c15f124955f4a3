"""EC2's wire protocol: signer's key id, forms to parameters, filters and pages, dicts to XML; no action is interpreted.

moto's parser and serializer use botocore's own model of the service, so every shape is the one botocore reads. Only
these parts of moto are loaded: its EC2 backend would cost half a second at start, and would answer from a state of its
own instead of our market.
"""

import base64
import binascii
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from botocore.loaders import Loader
from botocore.model import OperationNotFoundError
from botocore.utils import parse_timestamp
from moto.core.model import ServiceModel
from moto.core.parse import EC2QueryParser
from moto.core.serialize import EC2Serializer, SerializationContext

#: HTTP status of EC2's error codes; every other code is a client error (400).
_STATUS = {
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "RequestLimitExceeded": 503,
    "Unavailable": 503,
    "DryRunOperation": 412,
    "AuthFailure": 401,
    "MissingAuthenticationToken": 403,
    "UnauthorizedOperation": 403,
}
#: The credential of a signature (version 4): key id / date / region / service / aws4_request.
_CREDENTIAL = re.compile(r"AWS4-HMAC-SHA256 +Credential=([^/,\s]+)/\d{8}/[^/,\s]+/([^/,\s]+)/aws4_request")
Params = Mapping[str, Any]
T = TypeVar("T")
_PAGE = 1000


class Ec2Error(Exception):
    """An error answer with EC2's code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def signer_of(authorization: str | None) -> tuple[str, str]:
    """Return (access key id, service) of the header Authorization; the signature itself is not checked.

    Raises
    ------
    Ec2Error
        ``MissingAuthenticationToken`` for a request that is not signed.
    """
    found = _CREDENTIAL.match(authorization or "")
    if found is None:
        raise Ec2Error(
            "MissingAuthenticationToken",
            "The request must contain either a valid (registered) AWS access key ID or X.509 certificate.",
        )
    return found[1], found[2]


class Ec2Protocol:
    """Reads requests and writes answers of the EC2 query protocol."""

    def __init__(self) -> None:
        self._service = _service()

    def read(self, body: str) -> tuple[str, dict[str, Any]]:
        """Return the action and its parameters, named as botocore names them; times are aware.

        Raises
        ------
        Ec2Error
            `InvalidAction` or `InvalidParameterValue`.
        """
        form = dict(parse_qsl(body, keep_blank_values=True))
        action = form.get("Action", "")
        try:
            operation = self._service.operation_model(action)
        except OperationNotFoundError:
            raise unknown_action(action) from None
        parser = EC2QueryParser(operation, timestamp_parser=_aware)
        try:
            request: Any = {"values": form}  # the only key that this protocol's parser reads
            return action, parser.parse(request)
        except ValueError as error:
            raise Ec2Error("InvalidParameterValue", f"{action}: {error}") from None

    def write(self, action: str, result: Mapping[str, Any]) -> str:
        """Return the XML of an answer."""
        context = SerializationContext(str(uuid.uuid4()))
        body = EC2Serializer(self._service.operation_model(action), context).serialize(result)["body"]
        assert isinstance(body, str)
        return body

    @staticmethod
    def write_error(code: str, message: str) -> tuple[int, str]:
        """Return the status and the XML of an error."""
        body = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error><Code>{escape(code)}</Code>'
            f"<Message>{escape(message)}</Message></Error></Errors><RequestID>{uuid.uuid4()}</RequestID></Response>"
        )
        return _STATUS.get(code, 400), body


@lru_cache(maxsize=1)
def _service() -> ServiceModel:
    """Return botocore's model of EC2; cached, as reading it takes a while."""
    return ServiceModel(Loader().load_service_model("ec2", "service-2"), "ec2")


def unknown_action(action: str) -> Ec2Error:
    """Return the error for an action that this endpoint does not support."""
    return Ec2Error("InvalidAction", f"The action {action} is not valid for this web service.")


def _aware(text: str) -> datetime:
    moment: datetime = parse_timestamp(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def matches(values: Mapping[str, list[str]], filters: Iterable[Params]) -> bool:
    """Return whether every filter matches; in its values ``*`` stands for any text and ``?`` for any character."""
    for condition in filters:
        name = condition.get("Name", "")
        if name not in values and not name.startswith("tag:"):
            raise Ec2Error("InvalidParameterValue", f"The filter '{name}' is invalid")
        patterns = [_pattern(wanted) for wanted in condition.get("Values", ())]
        if not any(re.fullmatch(pattern, value, re.DOTALL) for pattern in patterns for value in values.get(name, [])):
            return False
    return True


def _pattern(wanted: str) -> str:
    """Return the regular expression of a filter's value; a backslash escapes a wildcard."""
    wild = {"*": ".*", "?": "."}
    parts = re.findall(r"\\([*?\\])|([*?])|(.)", wanted, re.DOTALL)
    return "".join(wild.get(star) or re.escape(escaped or plain) for escaped, star, plain in parts)


def page_of(rows: list[T], is_match: Callable[[T], bool], params: Params) -> tuple[list[T], str | None]:
    """Return one page of the `rows` to keep, and the token of the next.

    A token is an index into all rows, which only grow at their end, so no row is missed when others cease to match.
    """
    limit = min(params.get("MaxResults", _PAGE), _PAGE)
    page: list[T] = []
    for index in range(read_token(params.get("NextToken")).get("offset", 0), len(rows)):
        if is_match(rows[index]):
            if len(page) == limit:
                return page, write_token({"offset": index})
            page.append(rows[index])
    return page, None


def write_token(values: dict[str, int]) -> str:
    """Return the token of a page that begins where `values` say."""
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode()


def read_token(token: str | None) -> dict[str, int]:
    """Return what `write_token` was given; nothing without a token.

    Raises
    ------
    Ec2Error
        ``InvalidNextToken`` for a token of another origin.
    """
    if not token:
        return {}
    try:
        values = json.loads(base64.urlsafe_b64decode(token))
        return {str(name): max(int(value), 0) for name, value in values.items()}
    except (binascii.Error, ValueError, AttributeError, TypeError):
        raise Ec2Error("InvalidNextToken", "The token is not one of ours") from None
