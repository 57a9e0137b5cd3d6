#!/bin/sh
# Creates, in the folder $1, a minimal Debian system of the same release as this system, from the same package servers.
# It includes the programs that show manual pages and completions.
set -eu
. /etc/os-release
set -- "$1"
root=$1
for settings in $(grep -ls '^Acquire' /etc/apt/apt.conf.d/*); do
    set -- "$@" "--aptopt=$settings"
done
shift
# A file that contains only comments names no server.
for sources in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/*.sources; do
    if grep -qs '^deb\|^URIs:' "$sources"; then
        exec mmdebstrap --quiet --mode=root --variant=minbase "$@" \
            --include=man-db,bash-completion,systemd-standalone-sysusers,libgcc-s1 "$VERSION_CODENAME" "$root" "$sources"
    fi
done
echo "no list of package servers" >&2
exit 1
