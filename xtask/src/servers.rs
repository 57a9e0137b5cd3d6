//! Configurations that benchmarks and tests share.

use std::path::Path;

/// Unbound as the papers configure it (peers.md), between tester and auth.
pub(crate) fn unbound_config(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "server:\n  interface: 2001:2::1\n  access-control: 2001:2::/64 allow\n  module-config: \"dns64 iterator\"\n  \
         dns64-prefix: 64:ff9b::/96\n  local-zone: \"test.\" nodefault\n  do-not-query-localhost: no\n  num-threads: 1\n  \
         username: \"\"\n  chroot: \"\"\n  directory: \"{folder}\"\n  pidfile: \"{folder}/unbound.pid\"\n  use-syslog: no\n  \
         verbosity: 0\n  outgoing-range: 4096\n  num-queries-per-thread: 4096\n\
         remote-control:\n  control-enable: no\nforward-zone:\n  name: \"dns64perf.test.\"\n  forward-addr: 198.18.0.2\n"
    )
}
