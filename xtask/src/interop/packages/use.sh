#!/bin/sh
# Installs the packages in /packages, uses them like a new user, and removes them. There is no network access. With the
# argument "quickstart", quickstart is also run.
set -eu
export NO_COLOR=1 DEBIAN_FRONTEND=noninteractive MANPAGER=cat MANWIDTH=100
fail() {
    echo "FAILED: $*"
    exit 1
}
step() {
    echo "step: $*"
}
# holds TEXT COMMAND…: requires that the command succeeds and that its output contains the text.
holds() {
    text=$1
    shift
    "$@" >/packages/said 2>&1 || fail "$* ended with $?: $(tail -n 20 /packages/said)"
    grep -q -e "$text" /packages/said || fail "'$text' is not in what $* says: $(tail -n 40 /packages/said)"
}

step install
dpkg --install /packages/*.deb >/packages/said 2>&1 || fail "$(cat /packages/said)"
holds 'dns64bench 0' dns64bench --version
holds 'dns64d 0' dns64d --version

step manual pages
holds 'RFC 8219' man dns64bench
holds 'dns64bench measure --server' man dns64bench-measure
holds 'dns64bench-campaign-run' man dns64bench-campaign
holds 'EXIT STATUS' man dns64d
holds 'negative-max-ttl' man 5 dns64d.toml
holds 'Measures how many queries' whatis dns64bench

step completion
rc=/packages/bashrc
if [ -r /usr/share/bash-completion/bash_completion ]; then
    echo '. /usr/share/bash-completion/bash_completion' >$rc
else
    echo '. /usr/share/bash-completion/completions/dns64bench' >$rc
    echo '. /usr/share/bash-completion/completions/dns64d' >>$rc
fi
# Types a tab in a terminal, to test the completions for bash.
printf 'dns64bench mea\t --help\ndns64d che\t --help\nexit\n' |
    HISTFILE=/dev/null script -qec "bash --noprofile --rcfile $rc -i" /dev/null >/packages/typed 2>&1 || true
grep -q 'Usage: dns64bench measure' /packages/typed || fail "dns64bench mea<TAB>: $(cat /packages/typed)"
grep -q 'Usage: dns64d.* check' /packages/typed || fail "dns64d che<TAB>: $(cat /packages/typed)"
for file in zsh/vendor-completions/_dns64bench fish/vendor_completions.d/dns64d.fish; do
    [ -s /usr/share/$file ] || fail "/usr/share/$file is missing"
done

step restrictions of the service
dpkg --listfiles dns64d >/packages/files
for unit in dns64d.service dns64d.socket; do
    file=$(grep "/systemd/system/$unit\$" /packages/files) || fail "there is no $unit"
    [ -s "$file" ] || fail "$file is empty"
done
grep -q '^dns64d:' /etc/passwd || fail 'there is no user dns64d'
schema=$(sed -n '1s/^#:schema //p' /etc/dns64d/dns64d.toml)
[ -s "$schema" ] || fail "the configuration's schema '$schema' is missing"
# Requires that each page exists to which another page of the book links.
for book in /usr/share/doc/dns64d/book /usr/share/doc/dns64bench/docs/src; do
    for page in "$book"/*.md "$book"/dns64d/*.md; do
        if grep -q '{{#include' "$page"; then
            fail "$page includes a page that is not in the package"
        fi
        for link in $(grep -o '](\([a-z0-9./-]*\.md\)' "$page" | cut -c3- | sort -u); do
            [ -s "${page%/*}/$link" ] || fail "$page links to $link, which is missing"
        done
    done
done

step dns64d with the shipped configuration
# The file may be a link, or may be missing.
cp -a /etc/resolv.conf /packages/resolv.conf 2>/dev/null || true
rm -f /etc/resolv.conf
printf 'nameserver 127.0.0.1\n' >/etc/resolv.conf
holds 'upstreams of /etc/resolv.conf: 127.0.0.1:53' dns64d --config /etc/dns64d/dns64d.toml check
dns64bench auth --listen 127.0.0.1:53 2>/packages/auth.log &
auth=$!
dns64d --config /etc/dns64d/dns64d.toml 2>/packages/dns64d.log &
server=$!
tries=0
until dns64bench closed-loop --server '[::1]:5380' --names 9.0.0.0/24 --count 200 --expect-prefix 64:ff9b::/96 --json \
    >/packages/answers 2>/packages/said; do
    tries=$((tries + 1))
    [ $tries -lt 20 ] || fail "dns64d does not answer: $(cat /packages/said /packages/dns64d.log)"
    sleep 0.2
done
grep -Eq '"valid": ?200[,}]?' /packages/answers || fail "not all answers are right: $(cat /packages/answers)"
kill $server
wait $server || fail "dns64d ended with $?"
kill $auth
wait $auth || true

step dns64d that would query itself
printf 'nameserver ::1\nnameserver 127.0.0.1\n' >/etc/resolv.conf
sed 's/^listen = .*/listen = ["[::1]:53"]/' /etc/dns64d/dns64d.toml >/packages/53.toml
holds 'upstreams of /etc/resolv.conf: 127.0.0.1:53; skipped (this server itself): \[::1\]:53' \
    dns64d --config /packages/53.toml check
printf 'nameserver ::1\n' >/etc/resolv.conf
dns64d --config /packages/53.toml check 2>/packages/said >/dev/null || fail "status $?: $(cat /packages/said)"
grep -q 'names only this server itself (\[::1\]:53)' /packages/said || fail "no reason: $(cat /packages/said)"
sed -n '/^\[\[upstream\]\]/,$p' /packages/said >/packages/lines
[ "$(wc -l </packages/lines)" = 3 ] || fail "not three lines: $(cat /packages/said)"
cat /packages/lines >>/packages/53.toml
holds 'upstreams of the configuration: ' dns64d --config /packages/53.toml check

rm -f /etc/resolv.conf
cp -a /packages/resolv.conf /etc/resolv.conf 2>/dev/null || true

if [ "${1:-}" = quickstart ]; then
    step quickstart
    # Status 3 means that a busy machine invalidated trials, which is not a fault of the packages.
    status=0
    dns64bench quickstart --quiet >/packages/said 2>&1 || status=$?
    [ $status = 0 ] || [ $status = 3 ] || fail "quickstart ended with $status: $(cat /packages/said)"
    grep -q 'queries/s' /packages/said || fail "quickstart says: $(cat /packages/said)"
fi

step remove
dpkg --remove dns64bench dns64d >/packages/said 2>&1 || fail "$(cat /packages/said)"
[ -e /etc/dns64d/dns64d.toml ] || fail 'the configuration is gone before purge'
dpkg --purge dns64bench dns64d >/packages/said 2>&1 || fail "$(cat /packages/said)"
if dpkg --get-selections | grep -q dns64; then
    fail "$(dpkg --get-selections | grep dns64)"
fi
echo done
