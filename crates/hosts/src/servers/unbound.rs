//! Unbound with its DNS64 and iterator modules, and with the validator module for conformance
//! checks only. The operator's configuration lines are added to the section `server`.

use crate::servers::driver::{
    Driver, Program, Ready, Setting, ThreadOption, Translate, Version, with, words,
};

const FILE: &str = "unbound.conf";
pub(super) const DRIVER: Driver<Translate> = Driver {
    name: "Unbound",
    program: Program::Named("unbound"),
    version: Version::Argument("-V"),
    file: FILE,
    configuration,
    command: |setting, program| with(program, &["-d", "-c", &setting.file(FILE)]),
    check: Some(|file| words(&["unbound-checkconf", file])),
    thread_option: ThreadOption::ByConfiguration,
    ready: Ready::Answers,
    supports_ipv6: true,
    supports_xdp: false,
    later: &[],
};

fn configuration(setting: &Setting<'_, Translate>) -> String {
    let Setting { listen, threads, task, .. } = setting;
    let prefix = task.prefix();
    let upstreams = task.each_upstream(|ip, port| format!("  forward-addr: {ip}@{port}\n"));
    let (place, ip, port) = (setting.place(), listen.ip(), listen.port());
    let anchor = |line: &String| format!("  trust-anchor: \"{line}\"\n");
    let (validator, forwarded, anchors): (_, _, String) = match &task.checked {
        None => ("", "dns64perf.test.", String::new()),
        Some(checked) => (
            if checked.validates() { "validator " } else { "" },
            ".",
            checked.anchors.iter().map(anchor).collect(),
        ),
    };
    // The caches have space for a million names with two messages each. `so-reuseport` distributes the clients over the
    // threads.
    format!(
        "server:\n  interface: {ip}\n  port: {port}\n  access-control: ::/0 allow\n  access-control: 0.0.0.0/0 allow\n  \
         module-config: \"dns64 {validator}iterator\"\n  dns64-prefix: {prefix}\n  local-zone: \"test.\" nodefault\n  \
         do-not-query-localhost: no\n  num-threads: {threads}\n  so-reuseport: yes\n  msg-cache-size: 1g\n  \
         rrset-cache-size: 1g\n  outgoing-range: 4096\n  num-queries-per-thread: 4096\n  username: \"\"\n  chroot: \"\"\n  \
         directory: \"{place}\"\n  pidfile: \"{place}/unbound.pid\"\n  use-syslog: no\n  verbosity: 0\n{anchors}{}\
         remote-control:\n  control-enable: no\n\
         forward-zone:\n  name: \"{forwarded}\"\n{upstreams}",
        setting.extra("  ")
    )
}
