#!/usr/bin/env bash
# Builds rhapsode-VERSION-linux-x86_64.tar.gz: the program with every CPU back end, chosen at run time, and the small
# libraries it needs. It runs from wherever it is unpacked; libcurl, libarchive and libcrypto stay the system's, so
# that their security updates reach it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/steps.sh"
cd "$RHAPSODE_ROOT"

scripts/build.sh portable
version=$(sed -n 's/^project(rhapsode VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=rhapsode-$version-linux-x86_64
stage=build-portable/package
rm -rf "$stage"
run_step "Collecting $name" cmake --install build-portable --component runtime --prefix "$stage/$name" --strip

private=$stage/$name/lib/rhapsode
find "$stage/$name/bin" "$private" -type f -exec ldd {} + |
  awk '/lib(fmt|hwy|xxhash|gomp|gumbo|utf8proc|pugixml)\.so/ && $3 ~ /^\// { print $3 }' | sort -u |
  while read -r library; do cp -L "$library" "$private/"; done
compgen -G "$private/libggml-cpu-*.so" >/dev/null || fail "The portable build has no CPU back ends: delete .venv-portable and run make package again."

tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner -czf "build-portable/$name.tar.gz" "$name"
env -i "$stage/$name/bin/rhapsode" --version >/dev/null || fail "The packaged program does not start: see ldd $stage/$name/bin/rhapsode."
say "build-portable/$name.tar.gz ($(du -m "build-portable/$name.tar.gz" | cut -f 1) MB)"
