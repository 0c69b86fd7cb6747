#!/bin/bash
# hosts.sh FOLDER N: N hosts with an sshd each. Run it in its own network, mount, uts and process namespace: it and
# all that it starts die together. Nothing outside FOLDER is written; /run, /mnt and /etc/hosts are its own.
set -Eeuo pipefail
folder=$1 n=$2
export PATH=$PATH:/usr/sbin:/sbin
mount --make-rprivate /
mount -t tmpfs tmpfs /run && mkdir -p /run/sshd
ip link set lo up
ip link add hosts0 type bridge
ip addr add 10.79.0.1/24 dev hosts0
ip link set hosts0 up
{
  echo "127.0.0.1 localhost"
  for ((i = 1; i <= n; i++)); do echo "10.79.0.$((10 + i)) host$i"; done
} >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
: >"$folder/resolv.conf"
mount --bind "$folder/resolv.conf" /etc/resolv.conf || true

host() { # runs in the host's namespaces, started below
  i=$1
  readlink /proc/self/ns/net >"$folder/run/host$i.net"
  mount -t tmpfs tmpfs "$folder/unshared"
  hostname "host$i"
  ip link set lo up
  while ! ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
  ip addr add "10.79.0.$((10 + i))/24" dev eth0
  ip link set eth0 up
  exec "$(command -v sshd)" -D -f "$folder/sshd_$i" -E "$folder/log/host$i.log"
}
export -f host
export folder

for ((i = 1; i <= n; i++)); do
  cat >"$folder/sshd_$i" <<END
ListenAddress 10.79.0.$((10 + i))
Port 22
HostKey $folder/key/host
PidFile none
AuthorizedKeysFile $folder/key/id.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
UseDNS no
MaxStartups 100
Subsystem sftp internal-sftp
END
  unshare --net --uts --mount bash -c 'host "$1"' host "$i" &
  pid=$!
  while ! [ -s "$folder/run/host$i.net" ]; do sleep 0.02; done
  ip link add "v$i" type veth peer name eth0 netns "$pid"
  ip link set "v$i" master hosts0
  ip link set "v$i" up
done
for ((i = 1; i <= n; i++)); do
  for ((try = 0; try < 200; try++)); do
    if (exec 3<>"/dev/tcp/10.79.0.$((10 + i))/22") 2>/dev/null; then break; fi
    sleep 0.05
  done
done
echo ready >"$folder/run/ready"
wait
