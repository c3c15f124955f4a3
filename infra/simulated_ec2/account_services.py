"""The services next to EC2 that say what an account is and may do: what is needed of STS, Service Quotas and IAM.

- STS: GetCallerIdentity.
- Service Quotas: GetServiceQuota and ListServiceQuotas of the service ``ec2``, as far as the market has quotas.
- IAM: GetRole of ``AWSServiceRoleForEC2Spot``, without which EC2 sells no spot machine.

boto3's clients of all of them may be pointed at the endpoint of the market.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from proteus_spot.bidding.market.quotas import QUOTAS, Quota
from proteus_spot.infra.simulated_ec2.held_instances import ACCOUNT
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket

#: The services that this module answers for, by the name that a request is signed for.
SERVICES = ("sts", "iam", "servicequotas")
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
#: The value of a quota that the market does not limit.
_UNLIMITED = 100_000
_JSON = "application/x-amz-json-1.1"
_XML = "text/xml"


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """An HTTP answer."""

    status: int
    content_type: str
    body: str


class AccountServices:
    """The services of one account.

    Parameters
    ----------
    market : the simulated market; its quotas are the account's, and its faults strike (operation ``account``).
    region : name of its region.
    account : the account's id.
    """

    def __init__(self, market: SimSpotMarket, region: str, account: str = ACCOUNT) -> None:
        self._market = market
        self._region = region
        self._account = account

    def answer(self, service: str, target: str, body: str) -> ServiceAnswer:
        """Return the answer to a request.

        Parameters
        ----------
        service : one of `SERVICES`.
        target : the header X-Amz-Target, which names the action of a service that speaks JSON.
        body : a form, or JSON.

        Raises
        ------
        MarketError
            By a fault.
        """
        self._market.enter("account")
        if service == "servicequotas":
            return self._service_quotas(target.rpartition(".")[2], json.loads(body or "{}"))
        form = dict(parse_qsl(body))
        match service, form.get("Action"):
            case "sts", "GetCallerIdentity":
                return _xml(
                    "GetCallerIdentity",
                    "https://sts.amazonaws.com/doc/2011-06-15/",
                    {
                        "Arn": f"arn:aws:iam::{self._account}:user/simulated",
                        "UserId": f"AIDA{self._account}",
                        "Account": self._account,
                    },
                )
            case "iam", "GetRole":
                return self._role(form.get("RoleName", ""))
            case _, action:
                return service_error(service, 400, "InvalidAction", f"Could not find operation {action}")

    def _role(self, name: str) -> ServiceAnswer:
        if name != SPOT_ROLE or not self._market.behaviour.spot_role:
            return service_error("iam", 404, "NoSuchEntity", f"The role with name {name} cannot be found.")
        path = "/aws-service-role/spot.amazonaws.com/"
        role = {
            "Path": path,
            "RoleName": name,
            "RoleId": f"AROA{self._account}",
            "Arn": f"arn:aws:iam::{self._account}:role{path}{name}",
            "CreateDate": "2015-01-01T00:00:00Z",
            "AssumeRolePolicyDocument": "%7B%7D",
        }
        return _xml("GetRole", "https://iam.amazonaws.com/doc/2010-05-08/", {"Role": role})

    def _service_quotas(self, action: str, params: Mapping[str, Any]) -> ServiceAnswer:
        if params.get("ServiceCode") != "ec2":
            return service_error(
                "servicequotas", 400, "NoSuchResourceException", "The request failed: no such service."
            )
        if action == "ListServiceQuotas":
            return _json({"Quotas": [self._quota(quota) for quota in QUOTAS]})
        if action != "GetServiceQuota":
            return service_error("servicequotas", 400, "UnknownOperationException", action)
        for quota in QUOTAS:
            if quota.code == params.get("QuotaCode"):
                return _json({"Quota": self._quota(quota)})
        return service_error("servicequotas", 400, "NoSuchResourceException", "The request failed: no such quota.")

    def _quota(self, quota: Quota) -> dict[str, Any]:
        return {
            "ServiceCode": "ec2",
            "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
            "QuotaArn": f"arn:aws:servicequotas:{self._region}:{self._account}:ec2/{quota.code}",
            "QuotaCode": quota.code,
            "QuotaName": quota.name,
            "Value": float(self._market.behaviour.quotas.get(quota.code, _UNLIMITED)),
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }


def service_error(service: str, status: int, code: str, message: str) -> ServiceAnswer:
    """Return the error answer of a service in its protocol."""
    if service == "servicequotas":
        return ServiceAnswer(status, _JSON, json.dumps({"__type": code, "message": message}))
    body = (
        f"<ErrorResponse><Error><Type>Sender</Type><Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        f"</Error><RequestId>{uuid.uuid4()}</RequestId></ErrorResponse>"
    )
    return ServiceAnswer(status, _XML, body)


def _json(answer: Mapping[str, Any]) -> ServiceAnswer:
    return ServiceAnswer(200, _JSON, json.dumps(answer))


def _xml(action: str, namespace: str, result: Mapping[str, Any]) -> ServiceAnswer:
    body = (
        f'<{action}Response xmlns="{namespace}"><{action}Result>{_elements(result)}</{action}Result>'
        f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata></{action}Response>"
    )
    return ServiceAnswer(200, _XML, body)


def _elements(values: Mapping[str, Any]) -> str:
    return "".join(
        f"<{name}>{_elements(value) if isinstance(value, Mapping) else escape(value)}</{name}>"
        for name, value in values.items()
    )
