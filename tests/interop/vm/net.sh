#!/bin/bash
# net.sh: the private network for the guests: a network namespace with a bridge, its own address, and tap devices.
#   net.sh up   --ns NAME [--taps "tapA tapB"] [--ip 10.77.0.1/24] [--ip6 fd77::1/64] [--mtu 9000]
#   net.sh down --ns NAME
# Nothing is connected to the machine's other interfaces.  Needs root (CAP_NET_ADMIN).
set -euo pipefail
CMD=${1:?up or down}; shift
NS= TAPS="tapA tapB" IP=10.77.0.1/24 IP6=fd77::1/64 MTU=9000
while [ $# -gt 0 ]; do case $1 in
  --ns) NS=$2; shift 2;; --taps) TAPS=$2; shift 2;; --ip) IP=$2; shift 2;; --ip6) IP6=$2; shift 2;; --mtu) MTU=$2; shift 2;;
  *) sed -n 2,5p "$0"; exit 2;; esac; done
[ -n "$NS" ] || { echo "--ns is required" >&2; exit 2; }
case $CMD in
up)
  ip netns add "$NS"
  n() { ip -n "$NS" "$@"; }
  n link set lo up
  n link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
  for t in $TAPS; do
    n tuntap add dev "$t" mode tap
    ip netns exec "$NS" sysctl -qw "net.ipv6.conf.$t.disable_ipv6=1" || true
    n link set "$t" mtu "$MTU" master br0 up
  done
  n link set br0 mtu "$MTU" up
  n addr add "$IP" dev br0
  n addr add "$IP6" dev br0 nodad
  n -br addr;;
down) ip netns del "$NS";;
*) exit 2;;
esac
