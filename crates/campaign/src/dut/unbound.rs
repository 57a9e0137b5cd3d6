//! Unbound, as seed 001 configures it: DNS64 and iterator module, no validation.

use super::{Driver, Setting};

pub(super) const DRIVER: Driver = Driver {
    name: "Unbound",
    program: "unbound",
    version: &["-V"],
    check: Some(|setting| vec!["unbound-checkconf".into(), setting.file(FILE)]),
    configuration,
    arguments: |setting| vec!["-d".into(), "-c".into(), setting.file(FILE)],
};

const FILE: &str = "unbound.conf";

fn configuration(setting: &Setting<'_>) -> (&'static str, String) {
    let Setting { listen, upstream, prefix, cores, .. } = setting;
    let (place, ip, port) = (setting.place(), listen.ip(), listen.port());
    // Room for a million names; so-reuseport spreads the clients over the threads.
    let text = format!(
        "server:\n  interface: {ip}\n  port: {port}\n  access-control: ::/0 allow\n  access-control: 0.0.0.0/0 allow\n  \
         module-config: \"dns64 iterator\"\n  dns64-prefix: {prefix}\n  local-zone: \"test.\" nodefault\n  \
         do-not-query-localhost: no\n  num-threads: {cores}\n  so-reuseport: yes\n  msg-cache-size: 512m\n  \
         rrset-cache-size: 1g\n  outgoing-range: 4096\n  num-queries-per-thread: 4096\n  username: \"\"\n  chroot: \"\"\n  \
         directory: \"{place}\"\n  pidfile: \"{place}/unbound.pid\"\n  use-syslog: no\n  verbosity: 0\n\
         remote-control:\n  control-enable: no\n\
         forward-zone:\n  name: \"dns64perf.test.\"\n  forward-addr: {}@{}\n",
        upstream.ip(),
        upstream.port()
    );
    (FILE, text)
}
