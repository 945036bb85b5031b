#!/usr/bin/env bash
# Fetches the Java clients, their command-line tools and the brokers of Apache Kafka and Apache Pulsar
# from Maven Central into build/jars/<version> (Pulsar: build/jars/pulsar-<version>). Tests and
# benchmarks drive them; the project itself never loads them.
# usage: tools/get-jars.sh [VERSION...]        default: 3.9.1 4.3.1 pulsar-4.0.7
set -euo pipefail
cd "$(dirname "$0")/.."
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(3.9.1 4.3.1 pulsar-4.0.7)
for version in "${versions[@]}"; do
  target=build/jars/$version
  [ -f "$target/.complete" ] && continue
  rm -rf "$target"
  case $version in
    pulsar-*) project=(-f tools/servers/pulsar-pom.xml -Dpulsar.version="${version#pulsar-}") ;;
    *) project=(-f tools/servers/kafka-pom.xml -Dkafka.version="$version") ;;
  esac
  mvn -B -q "${project[@]}" \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/$target"
  touch "$target/.complete"
  echo "$target: $(find "$target" -name '*.jar' | wc -l) jars"
done
