#!/bin/bash
# build-initramfs.sh: an initramfs for a stock Debian kernel with what makes the guest a RoCEv2 (rdma_rxe) and
# NVMe-oF/RDMA peer. The packages come from scripts/install-deps.sh.
#
#   build-initramfs.sh --workdir DIR [--kver VER]
#
# Result: DIR/initrd.img (uncompressed cpio) and DIR/vmlinuz (link to the kernel).
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/sbin:/sbin
WORK= KVER=
while [ $# -gt 0 ]; do case $1 in
  --workdir) WORK=$2; shift 2;; --kver) KVER=$2; shift 2;;
  *) sed -n 2,7p "$0"; exit 2;; esac; done
[ -n "$WORK" ] || { echo "--workdir is required" >&2; exit 2; }
[ -n "$KVER" ] || KVER=$(ls /lib/modules | grep -- '-amd64$' | sort -V | tail -1)
[ -e /boot/vmlinuz-$KVER ] || { echo "no /boot/vmlinuz-$KVER (scripts/install-deps.sh installs one)" >&2; exit 1; }
mkdir -p "$WORK"; WORK=$(cd "$WORK" && pwd); R=$WORK/root
rm -rf "$R"
mkdir -p "$R"/{proc,sys,dev,run,tmp,mnt,host,root,etc/libibverbs.d,var,usr/bin,usr/sbin,usr/local/bin,usr/lib,usr/lib64}
for d in bin sbin lib lib64; do ln -s usr/$d "$R/$d"; done; ln -s /run "$R/var/run"   # merged /usr, like Debian
ln -s /proc/mounts "$R/etc/mtab"

# --- busybox first: the real tools copied below replace its applets ---------------
BB=$(command -v busybox); cp "$BB" "$R/bin/busybox"
for a in $("$BB" --list); do case $a in busybox|sh) ;; *) ln -sf busybox "$R/bin/$a";; esac; done

ln -sf /bin/busybox "$R/sbin/modprobe"   # the kernel's own request_module() calls /sbin/modprobe

# busybox sh would run its own applets (ip, ...) instead of the programs in PATH: use dash
DASH=$(readlink -f "$(command -v dash)")

# --- kernel modules ---------------------------------------------------------------
# virtio, RDMA, NVMe(-oF), file systems, VFIO/UIO, netem (loss tests), 9p (host share)
MODS="virtio_pci virtio_net virtio_console virtio_blk virtio_rng rdma_rxe ib_uverbs rdma_ucm ib_umad
 nvme nvme-rdma ext4 9p 9pnet_virtio sch_netem af_packet crc32c_generic crc32c_intel crc32-pclmul crc32_generic"
KD=$R/lib/modules/$KVER; mkdir -p "$KD"
cp /lib/modules/$KVER/modules.* "$KD/"
for m in $MODS; do
  modprobe -S $KVER --show-depends $m 2>/dev/null | awk '/^insmod/{print $2}' || true
done | sort -u | while read -r f; do
  mkdir -p "$R$(dirname "$f")"; cp "$f" "$R$f"
done
depmod -b "$R" "$KVER" 2>/dev/null || true

# --- programs + shared libraries ----------------------------------------------------
copy_lib() { # copies a shared object under the path the loader wants
  [ -e "$R$1" ] || { mkdir -p "$R$(dirname "$1")"; cp -L "$1" "$R$1"; }; }
copy_bin() { # FILE [DEST]
  local dest=${2:-$1}
  mkdir -p "$R$(dirname "$dest")"; rm -f "$R$dest"; cp -L "$1" "$R$dest"
  { ldd "$1" 2>/dev/null || true; } | awk '/=> \//{print $3} /^\t\/lib/{print $1}' | while read -r l; do copy_lib "$l"; done
}
copy_bin "$DASH" /usr/bin/sh
TOOLS="rdma ip tc nvme mkfs.ext4 e2fsck rping ucmatose
 ibv_devices ibv_devinfo ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong
 ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat ethtool"
for t in $TOOLS; do
  p=$(PATH=$PATH:/usr/sbin:/sbin command -v $t) || { echo "note: $t not installed, left out" >&2; continue; }
  copy_bin "$p" "/usr/bin/$t"
done
# ibverbs finds its provider by dlopen: ldd does not show it
LIBDIR=$(dirname "$(ldd "$(command -v ibv_devinfo)" | awk '/libibverbs/{print $3}')")
[ -d $LIBDIR/libibverbs ] || LIBDIR=/usr$LIBDIR
mkdir -p "$R$LIBDIR/libibverbs"   # compiled-in path: /usr/lib/<triplet>/libibverbs
cp -L $LIBDIR/libibverbs/librxe-rdmav*.so "$R$LIBDIR/libibverbs/"
cp /etc/libibverbs.d/rxe.driver "$R/etc/libibverbs.d/"
# pthread_exit() dlopens libgcc_s (rping aborts without it)
for g in /usr/lib/*-linux-gnu/libgcc_s.so.1 /lib/*-linux-gnu/libgcc_s.so.1; do [ -e $g ] && { copy_lib $g; break; }; done
mkdir -p "$R/etc/nvme" "$R/etc/rdma"
echo 'root:x:0:0:root:/root:/bin/sh' > "$R/etc/passwd"; echo 'root:x:0:' > "$R/etc/group"
printf '127.0.0.1 localhost\n::1 localhost\n' > "$R/etc/hosts"

cp "$HERE/guest-init.sh" "$R/init"; chmod 755 "$R/init"
( cd "$R" && find . -print0 | cpio --null -o -H newc -R 0:0 --quiet ) > "$WORK/initrd.img"
ln -sfn /boot/vmlinuz-$KVER "$WORK/vmlinuz"; echo "$KVER" > "$WORK/kver"
du -sh "$WORK/initrd.img"
