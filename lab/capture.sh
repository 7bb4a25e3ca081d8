#!/bin/sh
# Saves what `topolab topology capture --from FILE` reads, on a machine where nothing can be installed: ./capture.sh FILE.tar
# As root it also sees the scheduler's domains.
set -u
out=$(realpath "${1:?usage: capture.sh FILE.tar}")
copy=$(mktemp -d)
cd /
# sysfs files claim a page each, so they are copied by reading, never by tar.
{
    find sys/devices/system/cpu sys/devices/system/node -type f \
        \( -path '*/topology/*' -o -path '*/cache/index*' -o -name online -o -name possible -o -name isolated \
        -o -name cpu_capacity -o -name cpulist -o -name distance -o -name meminfo \)
    find sys/kernel/debug/sched/domains -type f \( -name name -o -name flags \)
    # Tables are root's to read, and only their names are wanted.
    find sys/firmware/acpi/tables -maxdepth 1 -type f
    echo proc/schedstat proc/cpuinfo proc/cmdline proc/sys/kernel/osrelease proc/sys/kernel/arch | tr ' ' '\n'
    echo sys/firmware/devicetree/base/model sys/firmware/devicetree/base/compatible | tr ' ' '\n'
} 2>/dev/null | while read -r file; do
    mkdir -p "$copy/$(dirname "$file")" && cat "$file" >"$copy/$file" 2>/dev/null
done
tar -C "$copy" -cf "$out" . && rm -rf "$copy"
