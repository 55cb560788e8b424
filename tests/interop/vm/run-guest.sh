#!/bin/bash
# run-guest.sh: starts one guest in the background and waits until it is ready.
#   run-guest.sh --workdir DIR --name A --ip 10.77.0.10/24 [--ip6 fd77::10/64] --net NET [options]
# NET: tap:IFNAME, an existing tap (with --ns NAME: in that namespace, see net.sh), or none
# options: --mtu 9000  --mem 1024  --smp 2  --mac MAC  --timeout 120  --ns NAME
#          --append "..."          more kernel command line     --qemu "..."  more QEMU arguments
# Files in DIR: NAME.pid NAME.console NAME.agent (command socket) NAME.qmp (QMP socket); DIR/share is /host in the guest.
set -euo pipefail
WORK= NAME= IP= NET=none MTU=9000 MEM=1024 SMP=2 MAC= TMO=120 NS= IP6= APP= QX=
while [ $# -gt 0 ]; do case $1 in
  --workdir) WORK=$2; shift 2;; --name) NAME=$2; shift 2;; --ip) IP=$2; shift 2;; --net) NET=$2; shift 2;;
  --mtu) MTU=$2; shift 2;; --mem) MEM=$2; shift 2;; --smp) SMP=$2; shift 2;; --mac) MAC=$2; shift 2;;
  --timeout) TMO=$2; shift 2;; --ns) NS=$2; shift 2;; --ip6) IP6=$2; shift 2;;
  --append) APP=$2; shift 2;; --qemu) QX=$2; shift 2;;
  *) sed -n 2,9p "$0"; exit 2;; esac; done
[ -n "$WORK" ] && [ -n "$NAME" ] || { echo "--workdir and --name are required" >&2; exit 2; }
WORK=$(cd "$WORK" && pwd); B=$WORK/$NAME
mkdir -p "$WORK/share"
if [ -e "$B.pid" ] && [ -d "/proc/$(cat "$B.pid")" ]; then echo "$NAME is already running" >&2; exit 1; fi
rm -f "$B.agent" "$B.qmp" "$B.console"
if [ -z "$MAC" ]; then # stable MAC from the address
  IFS=./ read -r a b c d _ <<< "${IP:-0.0.0.$(( $(cksum <<< "$NAME" | cut -d' ' -f1) % 250 + 1 ))/24}"
  MAC=$(printf '52:54:%02x:%02x:%02x:%02x' "$a" "$b" "$c" "$d")
fi
A=(-machine pc -accel tcg,thread=multi -cpu max -m "$MEM" -smp "$SMP" -nographic -nodefaults -no-reboot
   -serial "file:$B.console" -kernel "$WORK/vmlinuz" -initrd "$WORK/initrd.img"
   -device virtio-rng-pci -device virtio-serial-pci
   -chardev "socket,id=ag,path=$B.agent,server=on,wait=off" -device virtserialport,chardev=ag,name=agent
   -qmp "unix:$B.qmp,server=on,wait=off"
   -virtfs "local,path=$WORK/share,mount_tag=host,security_model=none")
CMD="console=ttyS0 quiet panic=1 mitigations=off net.ifnames=0 g.name=$NAME g.mtu=$MTU"
[ -n "$IP" ] && CMD="$CMD g.ip=$IP"
[ -n "$IP6" ] && CMD="$CMD g.ip6=$IP6"
case $NET in
tap:*) A+=(-netdev "tap,id=n0,ifname=${NET#tap:},script=no,downscript=no,vnet_hdr=off");;
none) ;; *) echo "bad --net" >&2; exit 2;; esac
# host_mtu announces the MTU; offloads and the tap vnet header off: what is captured is what is on the wire
[ "$NET" = none ] || A+=(-device "virtio-net-pci,netdev=n0,romfile=,mac=$MAC,host_mtu=$MTU,csum=off,guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,mrg_rxbuf=on")
PRE=(); [ -n "$NS" ] && PRE=(ip netns exec "$NS")
T0=$EPOCHREALTIME
# shellcheck disable=SC2086
setsid ${PRE[@]+"${PRE[@]}"} qemu-system-x86_64 "${A[@]}" $QX -append "$CMD $APP" > "$B.qemu.log" 2>&1 < /dev/null &
echo $! > "$B.pid"   # ip netns exec replaces itself by qemu: same pid
for ((i = 0; i < TMO * 10; i++)); do
  if grep -q GUEST-READY "$B.console" 2>/dev/null; then
    echo "$(grep -a -o 'GUEST-READY.*' "$B.console" | tr -d '\r') (wall $(awk -v a="$T0" -v b="$EPOCHREALTIME" "BEGIN{printf \"%.1f\", b-a}") s, pid $(cat "$B.pid"))"; exit 0; fi
  [ -d "/proc/$(cat "$B.pid")" ] || { echo "qemu ended early:" >&2; cat "$B.qemu.log" >&2; tail -5 "$B.console" >&2; exit 1; }
  sleep 0.1
done
echo "guest not ready after $TMO s; see $B.console" >&2; exit 1
