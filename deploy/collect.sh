#!/bin/bash
# usage: deploy/collect.sh DIRECTORY PROGRAM…
# Lays out a root file system that holds the programs, the libraries that they load, and what a user that is not root needs.
set -euo pipefail
(($# >= 2)) || { sed -n 2,3p "$0" >&2; exit 2; }
root=$1
shift
mkdir -p "$root"/{etc/ssl/certs,tmp,usr/bin,var/lib/memcgd}
chmod 1777 "$root/tmp"
chown 65532:65532 "$root/var/lib/memcgd"
echo 'memcgd:x:65532:65532::/var/lib/memcgd:/usr/sbin/nologin' >"$root/etc/passwd"
echo 'memcgd:x:65532:' >"$root/etc/group"
for program; do
  install --strip "$program" "$root/usr/bin/"
done
# Paths as the loader looks for them; each link's target under the name that it is asked for by.
ldd "$@" | sed -nE 's/^\t(.* => )?(\/[^ ]+) \(0x[0-9a-f]+\)$/\2/p' | sort -u | while read -r library; do
  install -D --mode=755 "$library" "$root$library"
done
