# Hook of mmdebstrap: puts the kernel of the release's backports into the chroot, and the files of the guest's initial RAM
# disk that do not depend on our programs into /guest. Installing the kernel's package would also create a RAM disk and
# configure a boot loader, so its packages are only unpacked.
chroot "$1" sh -e -c '
    sed -n "s/ \([a-z]*\) main$/ \1-backports main/p;q" /etc/apt/sources.list >/etc/apt/sources.list.d/backports.list
    suite=$(cut -d " " -f 3 /etc/apt/sources.list.d/backports.list)
    apt-get -qq update
    apt-get -qq --download-only --no-install-recommends install linux-image-amd64/$suite
    for package in /var/cache/apt/archives/linux-*.deb; do dpkg-deb --extract $package /; done
    version=$(ls /usr/lib/modules)
    depmod $version
    cp /usr/lib/modules/$version/vmlinuz /
    mkdir -p /guest/bin /guest/dev /guest/proc /guest/sys /guest/run /guest/tmp /guest/etc
    cp /usr/bin/busybox /guest/bin
    modprobe --set-version $version --show-depends --all igb virtio_net | while read insmod module; do
        cp --parents $module /guest
    done
    cp --parents /lib/modules/$version/modules.dep /guest
    rm -r /usr/lib/modules
'
