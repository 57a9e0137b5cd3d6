#!/bin/busybox sh
# First process of the guest that `cargo xtask qemu` starts. It runs programs with AF_XDP on emulated network cards, and
# writes one line per step to the first serial port: the name of the step, its exit status, and its output. The second
# serial port is the console.
#
#     Measurer eth0 ══ eth1 dns64d eth2 ── eth3 AuthDNS        ══ igb, two queues    ── virtio-net, one queue

set -f
export PATH=/bin
busybox mount -t proc none /proc
# Requires /proc. The files that exist already, such as ip, are kept.
busybox --install -s /bin 2>/dev/null
mount -t devtmpfs none /dev
mount -t sysfs none /sys
mount -t tmpfs none /run

# Absolute path, because busybox prefers its own command.
ip=/bin/ip
in_measurer="$ip netns exec measurer"
in_dut="$ip netns exec dut"
in_auth="$ip netns exec auth"

# Runs a command and reports the step.
report() {
    step=$1
    shift
    output=$("$@")
    status=$?
    # Without quotes, so that the output becomes one line.
    echo $step $status $output >/dev/ttyS0
}

# Runs a trial whose names begin with the given index. dns64d has none of these names in its cache.
measure() {
    $in_measurer dns64bench measure --server 2001:2::1 --rate 40 --duration 5s --timeout 5s --names 10.0.0.0/16 \
        --first-name $1 --expect-prefix 64:ff9b::/96 --xdp eth0 --xdp-mode zero-copy --auth-status /run/auth \
        --auth-limit 5s --window-limit 10000 --lateness-limit 5s --max-burst 500us --environment false --json --quiet
}

# Prints the number of packets that eth1 has received.
received() {
    $in_dut ethtool --statistics eth1 | sed -n 's/^ *rx_packets: //p'
}

# Runs a trial, and sets the link of eth1 down for a second after a fifth of the queries.
measure_and_flap() {
    before=$(received)
    (
        # The limit ends the loop if no queries are sent.
        for attempt in $(seq 300); do
            [ $(received) -ge $((before + 40)) ] && break
            sleep 0.1
        done
        $in_dut $ip link set eth1 down
        sleep 1
        $in_dut $ip link set eth1 up
    ) &
    measure $1
    status=$?
    wait $!
    return $status
}

# Runs a trial with a function, and repeats it once with other names if it is invalid. Prints the result.
trial() {
    $1 $2 >/run/trial
    status=$?
    if [ $status = 3 ]; then
        $1 $(($2 + 500)) >/run/trial
        status=$?
    fi
    cat /run/trial
    return $status
}

cat >/etc/dns64d.toml <<END
listen = [{ address = '[2001:2::1]:53', xdp = true }]
xdp-mode = 'zero-copy'
[dns64]
prefixes = [{ prefix = '64:ff9b::/96', allow-non-global = true }]
[access]
allow = ['2001:2::/64']
[dnssec]
validate = false
[[upstream]]
address = '198.18.0.2'
xdp = true
END

# Prints the number of dns64d's interfaces that have a filter, after waiting up to 20 s for the given number.
filters() {
    for attempt in $(seq 100); do
        filters=$($in_dut $ip -oneline link show | grep -c prog/xdp)
        [ $filters = $1 ] && break
        sleep 0.2
    done
    echo $filters
}

# Starts dns64d, and reports the step when dns64d has attached its filters.
start_dns64d() {
    $in_dut dns64d --config /etc/dns64d.toml &
    dns64d=$!
    report $1 filters 2
}

# Kills dns64d, and reports the step when the kernel has removed the filters.
kill_dns64d() {
    kill -9 $dns64d
    report $1 filters 0
}

modprobe -a igb virtio_net
for card in eth0 eth1 eth2 eth3; do
    $ip link set $card up
done
report igb dns64bench check --xdp eth0 --loop-to eth1 --loop-time 5s --json
report virtio dns64bench check --xdp eth2 --loop-to eth3 --loop-time 5s --json

while read namespace card address flags; do
    if [ ! -e /run/netns/$namespace ]; then
        $ip netns add $namespace
        # The IPv6 addresses of an interface must remain when its link goes down.
        $ip netns exec $namespace sysctl -q net.ipv6.conf.all.keep_addr_on_down=1
    fi
    $ip link set $card netns $namespace
    $ip netns exec $namespace $ip address add $address dev $card $flags
    $ip netns exec $namespace $ip link set $card up
done <<END
measurer eth0 2001:2::2/64 nodad
dut eth1 2001:2::1/64 nodad
dut eth2 198.18.0.1/24
auth eth3 198.18.0.2/24
END
# Both queues of eth1 receive queries if the ports of a packet select its queue.
report spread $in_dut ethtool --config-nfc eth1 rx-flow-hash udp6 sdfn

$in_auth dns64bench auth --listen 198.18.0.2:53 --xdp eth3 --xdp-mode zero-copy --status /run/auth --json >/run/auth.json &
auth=$!
start_dns64d start
report chain trial measure 0
report queues $in_dut ethtool --statistics eth1

kill_dns64d kill
start_dns64d restart
report after_kill trial measure 1000

report channels_in_use $in_dut ethtool --set-channels eth1 combined 1
report after_channels trial measure 2000

report long_mtu $in_dut $ip link set eth1 mtu 9000
report short_mtu $in_dut $ip link set eth1 mtu 1400
report after_mtu trial measure 3000

report flap trial measure_and_flap 4000
report after_flap trial measure 5000

kill_dns64d second_kill
report channels $in_dut ethtool --set-channels eth1 combined 1
start_dns64d one_queue
report with_one_queue trial measure 6000

kill $auth
wait $auth
report auth cat /run/auth.json
echo end >/dev/ttyS0
poweroff -f
