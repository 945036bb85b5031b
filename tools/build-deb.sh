#!/usr/bin/env bash
# Builds a Debian package in dist/ for this machine's distribution: the packages of Python in
# /usr/lib/trilogue, the command, the unit of systemd, man pages, completions. About 3 minutes.
# usage: tools/build-deb.sh   (needs gcc, python3-dev, python3-venv, dpkg-deb)
set -euo pipefail
python=/usr/bin/python3 # the distribution's: the package depends on it
for needed in dpkg-deb gcc; do
  command -v "$needed" >/dev/null || { echo "needs $needed: apt install dpkg gcc" >&2 && exit 1; }
done
"$python" -c 'import os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' 2>/dev/null ||
  { echo "needs the headers of $python: apt install python3-dev" >&2 && exit 1; }
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  { echo "needs the module venv of $python: apt install python3-venv" >&2 && exit 1; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
root=$work/root
chmod 755 "$work"

echo "building the wheel"
"$python" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install -q build 'click-man>=0.5'
"$work/tools/bin/python" -m build --wheel --outdir "$work" . >"$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
wheel=$(echo "$work"/*.whl)
version=$(basename "$wheel" | cut -d- -f2)

echo "installing it and what it depends on"
library=$root/usr/lib/trilogue
"$work/tools/bin/python" -m pip install -q --no-compile --target "$library" "$wheel[s3,postgres]"
rm -rf "$library/bin"
install -d "$root/usr/bin"
cat >"$root/usr/bin/trilogue" <<'COMMAND'
#!/bin/sh
PYTHONPATH=/usr/lib/trilogue PYTHONNOUSERSITE=1 exec /usr/bin/python3 -P -m trilogue.cli.main "$@"
COMMAND
chmod 755 "$root/usr/bin/trilogue"

run() { PYTHONPATH=$library:$("$work/tools/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') "$python" -B "$@"; }
install -d "$root/usr/share/man/man1"
run tools/man_pages.py "$version" "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
for shell in bash:bash-completion/completions/trilogue zsh:zsh/vendor-completions/_trilogue \
  fish:fish/vendor_completions.d/trilogue.fish; do
  target=$root/usr/share/${shell#*:}
  install -d "$(dirname "$target")"
  run -m trilogue.cli.main completion "${shell%%:*}" >"$target"
done
install -d "$root/usr/lib/systemd/system" "$root/usr/share/doc/trilogue" "$root/etc/trilogue"
sed 's#/opt/trilogue/bin/trilogue#/usr/bin/trilogue#' deploy/systemd/trilogue.service \
  >"$root/usr/lib/systemd/system/trilogue.service"
install -m 644 LICENSE "$root/usr/share/doc/trilogue/copyright"
install -m 644 deploy/debian/trilogue.toml "$root/etc/trilogue/trilogue.toml"

series=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
next=$("$python" -c 'import sys; print("%d.%d" % (sys.version_info[0], sys.version_info[1] + 1))')
install -d "$root/DEBIAN"
install -m 755 deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN"
echo /etc/trilogue/trilogue.toml >"$root/DEBIAN/conffiles"
architecture=$(dpkg --print-architecture)
cat >"$root/DEBIAN/control" <<CONTROL
Package: trilogue
Version: $version
Architecture: $architecture
Maintainer: Trilogue maintainers <maintainers@trilogue.invalid>
Depends: python3 (>= $series), python3 (<< $next), passwd
Section: net
Priority: optional
Installed-Size: $(du -sk "$root" | cut -f1)
Description: durable message broker for Kafka, Pulsar and TubeMQ clients
 One broker over one log, which unmodified clients of Kafka, Pulsar and TubeMQ
 use at the same time; its topics are tables for Spark.
CONTROL
find "$root" -type d -name __pycache__ -prune -exec rm -rf {} +
mkdir -p dist
package=dist/trilogue_${version}_$architecture.deb
dpkg-deb -z3 --root-owner-group --build "$root" "$package" >/dev/null
echo "$package: $(du -h "$package" | cut -f1)"
