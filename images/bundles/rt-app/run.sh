# rt-app writes one log a thread; its last column, wu_lat, is the time from a timer's end to running, in µs
# (rt-app doc/tutorial.txt).
set -eu
workers=$1 run=$2 period=$3 seconds=$4
busybox=/bin/busybox
$busybox mkdir -p /tmp/logs
cat() { $busybox cat "$@"; }
cat > /tmp/profile.json <<PROFILE
{
    "global": { "duration": $seconds, "calibration": "CPU0", "default_policy": "SCHED_OTHER", "logdir": "/tmp/logs", "log_basename": "t", "log_size": 2 },
    "tasks": {
        "worker": { "instance": $workers, "loop": -1, "run": $run, "timer": { "ref": "unique", "period": $period } }
    }
}
PROFILE
/usr/bin/rt-app /tmp/profile.json >&2
# Heading lines begin with a #; the first periods are the start of everything.
cat /tmp/logs/t*.log | $busybox awk '$1 ~ /^[0-9]+$/ { print $NF }' | $busybox sort -n > /tmp/latencies
$busybox awk '
    { v[NR] = $1 }
    END {
        if (NR == 0) { print "no wakeup was logged"; exit 1 }
        r50 = int(NR * 0.50 + 0.999999); r99 = int(NR * 0.99 + 0.999999)
        print "wakeups", NR; print "p50", v[r50]; print "p99", v[r99]; print "max", v[NR]
    }' /tmp/latencies
