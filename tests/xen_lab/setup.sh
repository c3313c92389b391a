# Makes a freshly booted dom0 a Xen host: run by bash, with the version of Xen's folders as its argument.
set -e
tools=/usr/lib/xen-$1
mkdir -p "$tools" /etc/xen
mount --bind "/xen$tools" "$tools"
mount --bind /xen/etc/xen /etc/xen
ln -sfn /run /var/run
mkdir -p /run/lock /run/xen /run/xenstored /var/lock /var/lib/xen /var/log/xen
mount -t xenfs xenfs /proc/xen
read -r capabilities </proc/xen/capabilities
test "$capabilities" = control_d

# What Xen's vif-bridge comes to.  That starts dozens of programs, for which the 40 s that xl gives it may be too few here.
cat >/run/vif-join <<'END'
#!/bin/bash
set -e
test "$1" = online || exit 0
bridge=$(xenstore-read "$XENBUS_PATH/bridge")
ip link set dev "$vif" mtu "$(<"/sys/class/net/$bridge/mtu")" master "$bridge" up
xenstore-write "$XENBUS_PATH/hotplug-status" connected
END
chmod 755 /run/vif-join

XENSTORED_ROOTDIR=/run/xenstored oxenstored --pid-file /run/xenstore.pid
for ((tries = 0; tries < 600; tries++)); do
    xenstore-read -s / >/dev/null 2>&1 && break
    sleep 0.1
done
xen-init-dom0
xenconsoled --pid-file=/run/xenconsoled.pid
# dom0 carries every guest's console and frames; a guest that spins shall not keep it from that.
xl sched-credit2 -d Domain-0 -w 2048
