"""Refresh every generated part of the documentation, or list what is out of date.

python -m tools.docs             write
python -m tools.docs --check     only look; exit code 1 when something would change
"""

from __future__ import annotations

import sys

from tools.docs import (
    administration,
    kafka,
    kafka_versions,
    limits,
    pulsar,
    spark,
    tubemq,
    tubemq_web,
)
from tools.docs.blocks import ROOT, Maker, fill, pages
from tools.docs.decisions import decisions
from tools.docs.numbers import figures, numbers
from tools.docs.picture import PICTURE, draw

MAKERS: dict[str, Maker] = {
    "kafka-apis": kafka.apis,
    "topic-settings": kafka.topic_settings,
    "broker-settings": kafka.broker_settings,
    "group-settings": kafka.group_settings,
    "kafka-errors": kafka.errors,
    "kafka-versions": kafka_versions.versions,
    "kafka-internal": kafka_versions.between_brokers,
    "kafka-version-differences": kafka_versions.differences,
    "pulsar-commands": pulsar.commands,
    "pulsar-sent": pulsar.sent,
    "pulsar-errors": pulsar.errors,
    "pulsar-policies": administration.policies,
    "pulsar-policies-refused": administration.refused,
    "pulsar-policies-without-effect": administration.without_effect,
    "pulsar-paths": administration.paths,
    "registry-routes": administration.registry_routes,
    "kafka-rest-routes": administration.kafka_rest_routes,
    "tubemq-methods": tubemq.methods,
    "tubemq-errors": tubemq.errors,
    "tubemq-web": tubemq_web.methods,
    "tubemq-web-not-served": tubemq_web.not_served,
    "spark-read-options": spark.read_options,
    "spark-write-options": spark.write_options,
    "limits-connections": limits.connections,
    "limits-pulsar": pulsar.bounds,
    "limits-tubemq": tubemq.bounds,
    "limits-topics": limits.topics,
    "limits-storage": limits.storage,
    "decisions": decisions,
    "figures": figures,
    "numbers": numbers,
}


def main(arguments: list[str]) -> int:
    """Fill all pages; 1 when --check finds an old one."""
    old = []
    texts = {page: fill(page.read_text(), MAKERS) for page in pages()}
    for page, after in {**texts, PICTURE: draw()}.items():
        before = page.read_text() if page.exists() else ""
        if before != after:
            old.append(str(page.relative_to(ROOT)))
            if "--check" not in arguments:
                page.write_text(after)
    for name in old:
        print(name)
    return 1 if old and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
