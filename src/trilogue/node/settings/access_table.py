"""Settings of access control: who has to log in, by which secrets, and who decides."""

from __future__ import annotations

from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.values import Kind

DELEGATION_MAX_MS = 3650 * 86_400_000

ACCESS: tuple[Setting, ...] = (
    Setting(
        "access.authenticate",
        Kind.SWITCH,
        "false",
        "Clients of Pulsar, TubeMQ and HTTP have to log in. Kafka clients log in where their "
        "listener has SASL or client certificates; on any other they are `User:ANONYMOUS`.",
    ),
    Setting(
        "access.authorize",
        Kind.SWITCH,
        "false",
        "Clients may do only what ACLs allow, at every listener; super users may do everything.",
    ),
    Setting(
        "access.allow-without-acl",
        Kind.SWITCH,
        "false",
        "Everyone may do everything with a topic, group, or other resource that no ACL is about, "
        "the cluster included: Kafka's `allow.everyone.if.no.acl.found`.",
    ),
    Setting(
        "access.super-users",
        Kind.TEXT,
        "",
        "Principals that may do everything, separated by `;` as in Kafka: `User:admin;User:ops`.",
    ),
    Setting(
        "access.anonymous",
        Kind.TEXT,
        "",
        "The name of clients of Pulsar and HTTP that send no credentials (Pulsar's anonymous "
        "role). Without it they are refused where `access.authenticate` is on.",
    ),
    Setting(
        "cluster.principals",
        Kind.TEXT,
        "",
        "The brokers of the cluster, separated by `;` as in Kafka: `User:node-1;User:node-2`. Only "
        "they have access to `listen.internal`, whatever ACLs allow.",
    ),
    Setting(
        "cluster.security-protocol",
        Kind.TEXT,
        "ssl",
        "How brokers log in at `listen.internal` (Kafka's `security.inter.broker.protocol`): `ssl` "
        "by a client certificate, `sasl-ssl` and `sasl` as Kafka's clients do, over TLS or not.",
        choices=("ssl", "sasl-ssl", "sasl"),
    ),
    Setting(
        "access.users-file",
        Kind.PATH,
        "",
        "A file of users, a line `user:password` each, readable by its owner only. Its users are "
        "brought into the cluster's users at the start and when it changes; a user whose line is "
        "removed is deleted. `trilogue users` needs no such file.",
    ),
    Setting(
        "access.key-file",
        Kind.PATH,
        "",
        "The file of the key that encrypts what must be kept in clear for a protocol (TubeMQ's "
        "signatures are made with the password). By default `access.key` in the data directory, "
        "created when it is first needed; only the owner may read it.",
    ),
    Setting(
        "access.token-key",
        Kind.PATH,
        "",
        "The file of the key that checks JSON web tokens: a secret of 32 bytes or more (HS256), a "
        "PEM key (RS256, ES256), or a JWKS. The key decides the algorithm. It is read again when "
        "it changes; sessions end whose token's key is not there any more.",
    ),
    Setting(
        "access.token-role-claim",
        Kind.TEXT,
        "sub",
        "The claim of a token that names its user.",
    ),
    Setting(
        "access.token-audience",
        Kind.TEXT,
        "",
        "The audience that tokens must have; empty: any.",
    ),
    Setting(
        "access.token-issuer",
        Kind.TEXT,
        "",
        "The issuer that tokens must have; empty: any.",
    ),
    Setting(
        "access.audit-log",
        Kind.PATH,
        "",
        "A file of JSON lines: refusals, failed logins, administrative acts. 64 MiB each, five "
        "are kept. Empty: these lines go to the server's log. Of several nodes, the second one "
        "and the following add `.node-2` and so on to the name.",
    ),
    Setting(
        "http.public-metrics",
        Kind.SWITCH,
        "false",
        "Serve `/metrics` without a login. Otherwise it needs one where `access.authenticate` is "
        "on, and DESCRIBE on the cluster where `access.authorize` is. `/healthz`, `/livez` and "
        "`/readyz` are always public.",
    ),
    Setting(
        "http.metrics-series",
        Kind.INTEGER,
        "10000",
        "How many series of `/metrics` may name a topic, a group or a subscription; more are left "
        "out, topics first, and 0 leaves out all. They are for principals that may DESCRIBE the "
        "cluster: `http.public-metrics` shows none.",
        minimum=0,
        maximum=1_000_000,
    ),
    Setting(
        "traces.endpoint",
        Kind.TEXT,
        "",
        "Where OpenTelemetry spans are sent, by OTLP over HTTP: `http://collector:4318`. Batches "
        "with a message that has a sampled `traceparent` get one when they arrive and when they "
        "are sent to a client. Needs `pip install trilogue[traces]`; empty: no spans.",
    ),
    Setting(
        "traces.batches-per-second",
        Kind.INTEGER,
        "100",
        "How many batches of a second, of all protocols together, are looked at for a "
        "`traceparent`.",
        minimum=1,
        maximum=10_000,
    ),
    Setting(
        "http.allowed-hosts",
        Kind.TEXT,
        "",
        "Names that the Host header of HTTP requests may have, with commas, besides IP addresses, "
        "`localhost`, the name of this machine and those of listeners and advertised addresses; "
        "`*`: any. Pages in browsers reach a server under names of their own (DNS rebinding).",
    ),
    Setting(
        "kafka.sasl-mechanisms",
        Kind.TEXT,
        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "The mechanisms of Kafka's listeners with SASL, separated by commas.",
    ),
    Setting(
        "kafka.sasl-session",
        Kind.DURATION,
        "0",
        "How long a session of a Kafka client lives before it has to log in again "
        "(`connections.max.reauth.ms`); 0: until its token expires.",
        minimum=0,
    ),
    Setting(
        "kafka.delegation-tokens",
        Kind.SWITCH,
        "true",
        "Kafka clients that logged in may make delegation tokens (KIP-48), and log in with them by "
        "SCRAM. Off: 61, as of a Kafka without `delegation.token.secret.key`.",
    ),
    Setting(
        "kafka.delegation-token-key",
        Kind.PATH,
        "",
        "The file of the secret that the HMACs of delegation tokens are made with (Kafka's "
        "`delegation.token.secret.key`): 16 bytes or more; white space around them does not count. "
        "By default `delegation-tokens.key` in the data directory, created with the first token. "
        "Only the owner may read it. Another secret makes every token's HMAC another.",
    ),
    Setting(
        "kafka.delegation-token-max-lifetime",
        Kind.DURATION,
        "7d",
        "How long a delegation token lives at most, whatever its renewals "
        "(`delegation.token.max.lifetime.ms`).",
        minimum=1,
        maximum=DELEGATION_MAX_MS,
    ),
    Setting(
        "kafka.delegation-token-expiry",
        Kind.DURATION,
        "1d",
        "How long a delegation token lives without a renewal (`delegation.token.expiry.time.ms`).",
        minimum=1,
        maximum=DELEGATION_MAX_MS,
    ),
    Setting(
        "kafka.delegation-token-check-every",
        Kind.DURATION,
        "1h",
        "How often expired and revoked delegation tokens are removed "
        "(`delegation.token.expiry.check.interval.ms`). They are of no use before that.",
        minimum=100,
    ),
    Setting(
        "kafka.delegation-tokens-limit",
        Kind.INTEGER,
        "10000",
        "How many delegation tokens there may be; one owner may have 1,000. Kafka's clients get "
        "POLICY_VIOLATION (44) beyond that.",
        minimum=1,
        maximum=100_000,
    ),
    Setting(
        "tls.certificate",
        Kind.PATH,
        "",
        "The certificate of the listeners with TLS, and its chain, as PEM. It is read again when "
        "it changes.",
    ),
    Setting("tls.key", Kind.PATH, "", "The private key of the certificate, as PEM."),
    Setting(
        "tls.client-ca",
        Kind.PATH,
        "",
        "The authorities whose client certificates are accepted, as PEM.",
    ),
    Setting(
        "tls.client-certificates",
        Kind.TEXT,
        "none",
        "Whether clients show a certificate over TLS; its subject is their principal.",
        choices=("none", "optional", "required"),
    ),
    Setting(
        "tls.principal-rules",
        Kind.TEXT,
        "DEFAULT",
        "How the subject of a client certificate becomes a name: Kafka's "
        "`ssl.principal.mapping.rules`.",
    ),
    Setting(
        "tls.names",
        Kind.TEXT,
        "",
        "Further names, with commas, that the certificate made by `--secure` is for, besides those "
        "of listeners, advertised addresses and this machine: a load balancer's or a service's.",
    ),
)
