"""ApiVersions v0-v4: which requests this door serves; asked first, before any login.

v1 throttle time · v2 - · v3 flexible; the client's software name and version, checked as Kafka does
(error 42) · v4 -. Features are not told: there are none to negotiate yet. A version that we do not
know is answered in v0 with error 35 and the range of this API alone (connection.py).
"""

from __future__ import annotations

import re

from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.api_versions import ApiVersionsRequest, ApiVersionsResponse
from trilogue.wire.kafka.errors import ErrorCode

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE = 3


def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Tell the table."""
    if call.version >= SOFTWARE_SINCE and not (
        SOFTWARE.fullmatch(request.client_software_name)
        and SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=call.door.versions)
