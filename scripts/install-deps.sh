#!/bin/bash
# install-deps.sh: the one install step behind ./run and ./check: Debian packages, nothing else.
#
#   scripts/install-deps.sh [--build-only] [--list]
#
#   --build-only   only what builds SoftHCA and runs the demo (what ./run needs)
#   --list         print the package names and stop
#
# Does nothing, quickly, when everything is there.
set -euo pipefail

BUILD="gcc libc6-dev meson ninja-build pkg-config python3 libisal-dev liburing-dev libjansson-dev
 libcmocka-dev libibverbs-dev librdmacm-dev"
# the unmodified programs of tests/system and bench; the second compiler for fuzzing
TEST="clang libclang-rt-14-dev ibverbs-utils rdmacm-utils ibverbs-providers perftest ucx-utils fio
 util-linux binutils tshark"
# the Linux guests of tests/interop
GUEST="qemu-system-x86 linux-image-amd64 busybox-static kmod cpio iproute2 procps rdma-core nvme-cli
 e2fsprogs ethtool"

want="$BUILD $TEST $GUEST"
for arg in "$@"; do
	case $arg in
	--build-only) want=$BUILD ;;
	--list) list=1 ;;
	-h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
	*) echo "install-deps.sh: unknown option $arg (see --help)" >&2; exit 2 ;;
	esac
done
if [ "${list:-0}" = 1 ]; then
	# shellcheck disable=SC2086
	printf '%s\n' $want
	exit 0
fi

# shellcheck disable=SC2086
missing=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $want 2>/dev/null |
	awk '$1 == "installed" { print $2 }' | sort -u |
	comm -13 - <(printf '%s\n' $want | sort -u) | tr '\n' ' ' || true)
missing=${missing% }
[ -n "$missing" ] || exit 0

if ! command -v apt-get > /dev/null; then
	echo "install-deps.sh: this is not Debian (no apt-get); please install: $missing" >&2
	exit 1
fi
SUDO=
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo > /dev/null; then
		echo "install-deps.sh: needs root for: apt-get install $missing" >&2
		exit 1
	fi
	SUDO=sudo
fi
echo "installing: $missing"
log=$(mktemp)
apt() {
	$SUDO env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" > "$log" 2>&1 && return
	cat "$log" >&2
	echo "install-deps.sh: apt-get $1 failed" >&2
	rm -f "$log"
	exit 1
}
apt update
# shellcheck disable=SC2086
apt install -y --no-install-recommends $missing
rm -f "$log"
