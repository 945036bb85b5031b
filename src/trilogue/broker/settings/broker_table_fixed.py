"""Settings of a Kafka 3.9 broker that have one value here: kind, name and Kafka's default.

Each part begins with the reason why nothing is to be set. A row without a third word has no value,
`""` is the empty one. All of them are shown, read-only, and a change is refused with the reason.
"""

from __future__ import annotations

PARTS: tuple[tuple[str, str], ...] = (
    (
        "there is no ZooKeeper",
        """
boolean broker.id.generation.enable true
string control.plane.listener.name
string password.encoder.cipher.algorithm AES/CBC/PKCS5Padding
int password.encoder.iterations 4096
int password.encoder.key.length 128
string password.encoder.keyfactory.algorithm
password password.encoder.old.secret
password password.encoder.secret
int reserved.broker.max.id 1000
string zookeeper.clientCnxnSocket
string zookeeper.connect
int zookeeper.connection.timeout.ms
int zookeeper.max.in.flight.requests 10
boolean zookeeper.metadata.migration.enable false
int zookeeper.session.timeout.ms 18000
boolean zookeeper.set.acl false
list zookeeper.ssl.cipher.suites
boolean zookeeper.ssl.client.enable false
boolean zookeeper.ssl.crl.enable false
list zookeeper.ssl.enabled.protocols
string zookeeper.ssl.endpoint.identification.algorithm HTTPS
string zookeeper.ssl.keystore.location
password zookeeper.ssl.keystore.password
string zookeeper.ssl.keystore.type
boolean zookeeper.ssl.ocsp.enable false
string zookeeper.ssl.protocol TLSv1.2
string zookeeper.ssl.truststore.location
password zookeeper.ssl.truststore.password
string zookeeper.ssl.truststore.type
""",
    ),
    (
        "there is one node: nothing is elected, and there are no connections to other brokers",
        """
boolean auto.leader.rebalance.enable true
int broker.heartbeat.interval.ms 2000
string broker.rack
int broker.session.timeout.ms 9000
boolean controlled.shutdown.enable true
int controlled.shutdown.max.retries 3
long controlled.shutdown.retry.backoff.ms 5000
string controller.listener.names
int controller.quorum.append.linger.ms 25
list controller.quorum.bootstrap.servers ""
int controller.quorum.election.backoff.max.ms 1000
int controller.quorum.election.timeout.ms 1000
int controller.quorum.fetch.timeout.ms 2000
int controller.quorum.request.timeout.ms 2000
int controller.quorum.retry.backoff.ms 20
list controller.quorum.voters ""
int controller.socket.timeout.ms 30000
string early.start.listeners
boolean eligible.leader.replicas.enable false
int initial.broker.registration.timeout.ms 60000
string inter.broker.listener.name
string inter.broker.protocol.version 3.9-IV0
long leader.imbalance.check.interval.seconds 300
int leader.imbalance.per.broker.percentage 10
string listener.security.protocol.map \
SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
string metadata.log.dir
long metadata.log.max.record.bytes.between.snapshots 20971520
long metadata.log.max.snapshot.interval.ms 3600000
int metadata.log.segment.bytes 1073741824
long metadata.log.segment.ms 604800000
int metadata.max.idle.interval.ms 500
long metadata.max.retention.bytes 104857600
long metadata.max.retention.ms 604800000
int request.timeout.ms 30000
string security.inter.broker.protocol PLAINTEXT
long socket.connection.setup.timeout.max.ms 30000
long socket.connection.setup.timeout.ms 10000
""",
    ),
    (
        "there is one copy of a partition, and no followers",
        """
int alter.log.dirs.replication.quota.window.num 11
int alter.log.dirs.replication.quota.window.size.seconds 1
int default.replication.factor 1
long log.dir.failure.timeout.ms 30000
int min.insync.replicas 1
int num.replica.alter.log.dirs.threads
int replica.fetch.backoff.ms 1000
int replica.fetch.max.bytes 1048576
int replica.fetch.min.bytes 1
int replica.fetch.response.max.bytes 10485760
int replica.fetch.wait.max.ms 500
long replica.high.watermark.checkpoint.interval.ms 5000
long replica.lag.time.max.ms 30000
string replica.selector.class
int replica.socket.receive.buffer.bytes 65536
int replica.socket.timeout.ms 30000
int replication.quota.window.num 11
int replication.quota.window.size.seconds 1
""",
    ),
    (
        "positions of groups are kept with the log and are no topic",
        """
short offsets.commit.required.acks -1
int offsets.commit.timeout.ms 5000
int offsets.load.buffer.size 5242880
int offsets.topic.compression.codec 0
int offsets.topic.num.partitions 50
int offsets.topic.segment.bytes 104857600
""",
    ),
    (
        "the state of transactions is in the journal and is no topic",
        """
int transaction.abort.timed.out.transaction.cleanup.interval.ms 10000
boolean transaction.partition.verification.enable true
int transaction.remove.expired.transaction.cleanup.interval.ms 3600000
int transaction.state.log.load.buffer.size 5242880
int transaction.state.log.num.partitions 50
int transaction.state.log.segment.bytes 104857600
""",
    ),
    (
        "there is no second tier of storage that Kafka's clients know of",
        """
int remote.fetch.max.wait.ms 500
long remote.log.index.file.cache.total.size.bytes 1073741824
int remote.log.manager.copier.thread.pool.size -1
long remote.log.manager.copy.max.bytes.per.second 9223372036854775807
int remote.log.manager.copy.quota.window.num 11
int remote.log.manager.copy.quota.window.size.seconds 1
int remote.log.manager.expiration.thread.pool.size -1
long remote.log.manager.fetch.max.bytes.per.second 9223372036854775807
int remote.log.manager.fetch.quota.window.num 11
int remote.log.manager.fetch.quota.window.size.seconds 1
long remote.log.manager.task.interval.ms 30000
int remote.log.manager.thread.pool.size 10
int remote.log.metadata.custom.metadata.max.bytes 128
string remote.log.metadata.manager.class.name \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
string remote.log.metadata.manager.class.path
string remote.log.metadata.manager.impl.prefix rlmm.config.
string remote.log.metadata.manager.listener.name
int remote.log.reader.max.pending.tasks 100
int remote.log.reader.threads 10
string remote.log.storage.manager.class.name
string remote.log.storage.manager.class.path
string remote.log.storage.manager.impl.prefix rsm.config.
boolean remote.log.storage.system.enable false
""",
    ),
    (
        "security is configured by settings of the node",
        """
int connection.failed.authentication.delay.ms 100
password delegation.token.master.key
password delegation.token.secret.key
class principal.builder.class \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
class sasl.client.callback.handler.class
password sasl.jaas.config
string sasl.kerberos.kinit.cmd /usr/bin/kinit
list sasl.kerberos.principal.to.local.rules DEFAULT
string sasl.kerberos.service.name
double sasl.kerberos.ticket.renew.jitter 0.05
double sasl.kerberos.ticket.renew.window.factor 0.8
class sasl.login.callback.handler.class
class sasl.login.class
int sasl.login.connect.timeout.ms
int sasl.login.read.timeout.ms
short sasl.login.refresh.buffer.seconds 300
short sasl.login.refresh.min.period.seconds 60
double sasl.login.refresh.window.factor 0.8
double sasl.login.refresh.window.jitter 0.05
long sasl.login.retry.backoff.max.ms 10000
long sasl.login.retry.backoff.ms 100
string sasl.mechanism.controller.protocol GSSAPI
string sasl.mechanism.inter.broker.protocol GSSAPI
int sasl.oauthbearer.clock.skew.seconds 30
list sasl.oauthbearer.expected.audience
string sasl.oauthbearer.expected.issuer
long sasl.oauthbearer.jwks.endpoint.refresh.ms 3600000
long sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms 10000
long sasl.oauthbearer.jwks.endpoint.retry.backoff.ms 100
string sasl.oauthbearer.jwks.endpoint.url
string sasl.oauthbearer.scope.claim.name scope
string sasl.oauthbearer.sub.claim.name sub
string sasl.oauthbearer.token.endpoint.url
class sasl.server.callback.handler.class
int sasl.server.max.receive.size 524288
string security.providers
boolean ssl.allow.dn.changes false
boolean ssl.allow.san.changes false
list ssl.cipher.suites ""
string ssl.client.auth none
list ssl.enabled.protocols TLSv1.2,TLSv1.3
string ssl.endpoint.identification.algorithm https
class ssl.engine.factory.class
password ssl.key.password
string ssl.keymanager.algorithm SunX509
password ssl.keystore.certificate.chain
password ssl.keystore.key
string ssl.keystore.location
password ssl.keystore.password
string ssl.keystore.type JKS
string ssl.principal.mapping.rules DEFAULT
string ssl.protocol TLSv1.3
string ssl.provider
string ssl.secure.random.implementation
string ssl.trustmanager.algorithm PKIX
password ssl.truststore.certificates
string ssl.truststore.location
password ssl.truststore.password
string ssl.truststore.type JKS
""",
    ),
    (
        "no foreign code runs here",
        """
class alter.config.policy.class.name
string authorizer.class.name ""
boolean auto.include.jmx.reporter true
class client.quota.callback.class
class create.topic.policy.class.name
int kafka.metrics.polling.interval.secs 10
list kafka.metrics.reporters ""
list metric.reporters ""
""",
    ),
    (
        "measures are counters, read at /metrics",
        """
int metrics.num.samples 2
string metrics.recording.level INFO
long metrics.sample.window.ms 30000
""",
    ),
    (
        "all groups together have one limit",
        """
short group.share.max.groups 10
""",
    ),
    (
        "one event loop serves all connections, and helpers of their own do slow work",
        """
int delete.records.purgatory.purge.interval.requests 1
int fetch.purgatory.purge.interval.requests 1000
int group.coordinator.append.linger.ms 10
int group.coordinator.threads 1
boolean log.cleaner.enable true
int producer.purgatory.purge.interval.requests 1000
long queued.max.request.bytes -1
int queued.max.requests 500
int socket.receive.buffer.bytes 102400
int socket.send.buffer.bytes 102400
""",
    ),
    (
        "the log is cut, synced and indexed by the broker itself",
        """
int log.flush.offset.checkpoint.interval.ms 60000
long log.flush.scheduler.interval.ms 9223372036854775807
int log.flush.start.offset.checkpoint.interval.ms 60000
string log.message.format.version 3.0-IV1
int log.roll.hours 168
int log.roll.jitter.hours 0
""",
    ),
    (
        "it is not limited so",
        """
int telemetry.max.bytes 1048576
""",
    ),
    (
        "a client's rate is counted in a bucket that `quotas.burst` gives its size",
        """
int controller.quota.window.num 11
int controller.quota.window.size.seconds 1
int quota.window.num 11
int quota.window.size.seconds 1
""",
    ),
    (
        "connections a second are bounded for each address, by a quota",
        """
int max.connection.creation.rate 2147483647
""",
    ),
    (
        "topics may be deleted",
        """
boolean delete.topic.enable true
""",
    ),
)
