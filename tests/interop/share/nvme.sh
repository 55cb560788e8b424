# nvme.sh: NVMe host steps in the guest. Sourced by the commands that the tests send:
#   . /host/nvme.sh; connect 10.77.0.1 NQN 1 [nvme connect options]; D=$(disk NQN 1); ...
# Every step that fails ends the command with status 1 and the kernel's last words.
modprobe -q nvme-rdma
# a host of its own for each guest: 11111111-... for A, 22222222-... for B
case $(hostname) in A) N=1 ;; B) N=2 ;; *) N=3 ;; esac
HOSTID=$N$N$N$N$N$N$N$N-2222-3333-4444-555555555555
HOSTNQN=nqn.2014-08.org.nvmexpress:uuid:$HOSTID
HOST="--hostnqn=$HOSTNQN --hostid=$HOSTID"
PORT=4420

fail() {
	echo "guest: $*"
	dmesg | tail -12
	exit 1
}

discover() { nvme discover -t rdma -a "$1" -s $PORT $HOST || fail "discover"; }

# connect ADDRESS NQN QUEUES [OPTIONS]. A queue set has at most as many queues as there are CPUs:
# eight are four for reads and four for writes
connect() {
	a=$1 n=$2 q=$3
	shift 3
	case $q in 8) q="--nr-io-queues=4 --nr-write-queues=4" ;; *) q="--nr-io-queues=$q" ;; esac
	# TRIES: a lost REQ is sent again by Linux after 4.6 to 6 s, which is later than the host gives up
	i=${TRIES:-1}
	until nvme connect -t rdma -a "$a" -s $PORT -n "$n" $HOST $q --keep-alive-tmo=5 --reconnect-delay=1 "$@"; do
		i=$((i - 1))
		[ $i -gt 0 ] || fail "connect $n"
	done
}

disconnect() { nvme disconnect -n "$1" || fail "disconnect"; }

# the block device of namespace NSID of subsystem NQN
disk() {
	i=0
	while [ $i -lt 100 ]; do
		for d in /sys/block/nvme*n*; do
			# nvme0c0n1 is a path of nvme0n1, not a disk
			case $d in *nvme*c*n*) continue ;; esac
			[ -e "$d/nsid" ] || continue
			[ "$(cat "$d/nsid")" = "$2" ] && [ "$(cat "$d/device/subsysnqn" 2> /dev/null)" = "$1" ] || continue
			[ -e "/dev/${d##*/}" ] || mdev -s
			[ "$(cat "$d/size")" = 0 ] || { echo "/dev/${d##*/}"; return; }
		done
		sleep 0.1
		i=$((i + 1))
	done
	echo "no-such-disk-$1-$2"
}

# I/O queues of the controller of subsystem NQN
queues() {
	for c in /sys/class/nvme/nvme*; do
		[ "$(cat "$c/subsysnqn")" = "$1" ] && cat "$c/queue_count" && return
	done
}

# make_files DIRECTORY: files of many sizes; their checksums on stdout
make_files() {
	for size in 1 2 511 512 513 4095 4096 4097 65535 65536 131073 ${MORE-1048577 5000000}; do
		head -c $size /dev/urandom > "$1/file$size" || fail "write $size"
	done
	dd if=/dev/urandom of="$1/file-big" bs=1M count=${BIG:-32} 2> /dev/null || fail "write big"
	checksums "$1"
}

checksums() { (cd "$1" && sha256sum file*); }

# files ADDRESS NQN NSID QUEUES: file system, files, away, back, check
files() {
	connect "$1" "$2" "$4"
	D=$(disk "$2" "$3")
	mkfs.ext4 -q -F -E nodiscard "$D" || fail "mkfs $D"
	mkdir -p /mnt/n
	mount -t ext4 "$D" /mnt/n || fail "mount"
	make_files /mnt/n > /tmp/sums
	sync
	umount /mnt/n || fail "umount"
	disconnect "$2"
	connect "$1" "$2" "$4"
	D=$(disk "$2" "$3")
	echo 3 > /proc/sys/vm/drop_caches
	e2fsck -fn "$D" > /tmp/fsck 2>&1 || { cat /tmp/fsck; fail "fsck"; }
	mount -t ext4 -o ro "$D" /mnt/n || fail "mount again"
	checksums /mnt/n > /tmp/sums2
	umount /mnt/n || fail "umount again"
	cmp /tmp/sums /tmp/sums2 || fail "checksums differ"
	disconnect "$2"
	cat /tmp/sums
}

# numbered_writes DEVICE [COUNT]: 4 KiB blocks that say their number, one after the other, past the
# page cache, until there is a /tmp/stop; a number is in /tmp/acked once its write was acknowledged
numbered_writes() {
	rm -f /tmp/stop
	: > /tmp/acked
	i=0
	while [ ! -e /tmp/stop ] && [ $i -lt "${2:-10000}" ]; do
		yes "block $i" | head -c 4096 > /tmp/block
		dd if=/tmp/block of="$1" bs=4k count=1 seek=$i oflag=direct conv=notrunc 2> /dev/null || fail "write $i"
		echo $i >> /tmp/acked
		i=$((i + 1))
	done
}

# every acknowledged block is there
verify_numbered() {
	echo 3 > /proc/sys/vm/drop_caches
	while read -r i; do
		yes "block $i" | head -c 4096 > /tmp/block
		dd if="$1" of=/tmp/back bs=4k count=1 skip=$i iflag=direct 2> /dev/null || fail "read $i"
		cmp -s /tmp/block /tmp/back || fail "block $i was acknowledged and is not there"
	done < /tmp/acked
	wc -l < /tmp/acked
}
