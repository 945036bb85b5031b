#!/usr/bin/env bash
# Fetches the Java clients, their command-line tools and the brokers of Apache Kafka, Apache Pulsar and
# Apache TubeMQ from Maven Central into build/jars/<version> (pulsar-<version>, tubemq-<version>). Tests
# and benchmarks drive them; the project itself never loads them. Of Kafka before 3 it is the client alone;
# apps-<version> are Streams, Connect and MirrorMaker of a Kafka version, spark-kafka-<version> is Spark's own connector.
# usage: tools/get-jars.sh [VERSION...]        default: 0.9.0.1 0.10.2.2 0.11.0.3 2.0.0 3.9.1 4.3.1
#        apps-3.9.1 apps-4.3.1 pulsar-4.0.7 tubemq-2.4.0
set -euo pipefail
cd "$(dirname "$0")/.."
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(0.9.0.1 0.10.2.2 0.11.0.3 2.0.0 3.9.1 4.3.1)
[ $# -gt 0 ] || versions+=(apps-3.9.1 apps-4.3.1 pulsar-4.0.7 tubemq-2.4.0)
for version in "${versions[@]}"; do
  target=build/jars/$version
  [ -f "$target/.complete" ] && continue
  rm -rf "$target"
  case $version in
    apps-*) project=(-f tools/servers/kafka-apps-pom.xml -Dkafka.version="${version#apps-}") ;;
    pulsar-*) project=(-f tools/servers/pulsar-pom.xml -Dpulsar.version="${version#pulsar-}") ;;
    spark-kafka-*) project=(-f tools/servers/spark-kafka-pom.xml -Dspark.version="${version#spark-kafka-}") ;;
    tubemq-*) project=(-f tools/servers/tubemq-pom.xml) ;;
    [012].*) project=(-f tools/servers/kafka-clients-pom.xml -Dkafka.version="$version") ;;
    *) project=(-f tools/servers/kafka-pom.xml -Dkafka.version="$version") ;;
  esac
  mvn -B -q "${project[@]}" \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/$target"
  case $version in
    tubemq-*) # the jar alone: Maven would want its parent POM to find out what it needs
      (cd "$target" && mvn -B -q dependency:copy -DoutputDirectory="$PWD" \
        -Dartifact="org.apache.inlong:tubemq-server:${version#tubemq-}") ;;
  esac
  touch "$target/.complete"
  echo "$target: $(find "$target" -name '*.jar' | wc -l) jars"
done
