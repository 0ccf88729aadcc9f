#!/bin/bash
# Installs the packages of packages.txt that are missing (Debian 12).  With --ci those of .ci/run too.
set -euo pipefail
cd "$(dirname "$0")/.."

with_ci=
case ${1-} in
  '') ;;
  --ci) with_ci=1 ;;
  *) echo "usage: $0 [--ci]" >&2; exit 2 ;;
esac

# A command of that name is as good as the package: node's own packages bring npm along, others their own cmake.
is_there() {
  [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) == installed ]] ||
    command -v "$1" >/dev/null
}

command -v dpkg-query >/dev/null || { echo "$0: this is no Debian system: install by hand what packages.txt lists" >&2; exit 1; }
missing=()
while read -r package only; do
  [[ $package == '' || $package == \#* ]] && continue
  [[ $only == ci && ! $with_ci ]] && continue
  is_there "$package" || missing+=("$package")
done <packages.txt
((${#missing[@]} == 0)) && exit 0

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    { echo "$0: ${missing[*]} must be installed: run it as root, or install sudo" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing ${missing[*]}"
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet --quiet --option DPkg::Lock::Timeout=300 "$@"; }
apt update
apt install --yes --no-install-recommends "${missing[@]}" >/dev/null
