"""ShareAcknowledge v1-v2: a member accepts, releases, rejects or renews records (KIP-932).

v2 renews acquisition locks (KIP-1222). Answered when what it changed is durable. With epoch -1 the
share session ends, and what the member still has is given back.
"""

from __future__ import annotations

from trilogue.gateway.kafka.context import DurableResponse, RequestContext
from trilogue.gateway.kafka.share.acknowledgements import (
    AcknowledgementResult,
    apply_acknowledgements,
)
from trilogue.gateway.kafka.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareSessionKey,
    TopicPartitionKey,
)
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.share.acknowledge import (
    AcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def handle_share_acknowledge(
    context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | DurableResponse:
    """Apply acknowledgements of a share session."""
    group, member_id = request.group_id, request.member_id
    if group and not context.is_allowed(group):
        return ShareAcknowledgeResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group or not member_id:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST)
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    sessions = context.gateway.share_sessions
    session = sessions.begin(
        ShareSessionKey(group, member_id), epoch, context.session, context.creator
    )
    if isinstance(session, ErrorCode):
        return ShareAcknowledgeResponse(error_code=session)
    groups = context.broker.share_groups
    results = apply_acknowledgements(
        context,
        session.key,
        request.topics,
        may_renew=request.is_renew_ack and groups.may_renew(group),
    )
    if epoch == FINAL_EPOCH:
        sessions.close(session)
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=groups.limits(group).lock_ms,
        responses=_group_by_topic(results),
    )
    return DurableResponse(response, _set_failed)


def _group_by_topic(
    results: dict[TopicPartitionKey, AcknowledgementResult],
) -> list[ShareAcknowledgeTopicResponse]:
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for key, result in results.items():
        topic = topics.setdefault(
            key.topic_id, ShareAcknowledgeTopicResponse(topic_id=key.topic_id)
        )
        topic.partitions.append(
            AcknowledgePartitionData(
                partition_index=key.partition, error_code=result.code, error_message=result.text
            )
        )
    return list(topics.values())


def _set_failed(response: ShareAcknowledgeResponse, code: ErrorCode) -> ShareAcknowledgeResponse:
    """Report that nothing of it is durable."""
    for topic in response.responses:
        for partition in topic.partitions:
            partition.error_code = partition.error_code or code
    return response
