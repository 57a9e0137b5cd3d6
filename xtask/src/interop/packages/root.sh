#!/bin/sh
# Runs use.sh in a separate root and separate namespaces (mounts, network, processes), and prints a line "left: PATH"
# for every file that was not there before. Arguments: the folder of the packages, the root ("over" means a copy of this
# system whose changes are discarded), and "quickstart" to also run quickstart.
set -eu
packages=$1
root=$2
quickstart=${3:-}
here=$(dirname "$0")
ip link set lo up
mount --make-rprivate /
if [ "$root" = over ]; then
    memory=$packages/memory
    mkdir "$memory"
    mount -t tmpfs -o size=1g tmpfs "$memory"
    mkdir "$memory/upper" "$memory/work" "$memory/root"
    mount -t overlay -o "lowerdir=/,upperdir=$memory/upper,workdir=$memory/work" overlay "$memory/root"
    root=$memory/root
    over=yes
else
    over=no
    (cd "$root" && find . -print | sort) >"$packages/before"
fi
mkdir "$root/packages"
cp "$packages"/*.deb "$here/use.sh" "$root/packages"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
# The environment is reset, because the host and the root do not have the same programs.
env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb LC_ALL=C.UTF-8 chroot "$root" /bin/sh /packages/use.sh "$quickstart"
umount -R "$root/dev" "$root/sys" "$root/proc"
rm -r "$root/packages"
if [ $over = yes ]; then
    (cd "$memory/upper" && find . -print) | while read -r path; do
        [ -e "/$path" ] || [ -L "/$path" ] || echo "left: ${path#.}"
    done
else
    (cd "$root" && find . -print | sort) >"$packages/after"
    comm -13 "$packages/before" "$packages/after" | sed 's/^\./left: /'
fi
