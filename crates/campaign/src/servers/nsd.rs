//! NSD. Operators' lines go into `server`.

use super::{Driver, Program, Ready, Serve, Setting, Told, Version, with, words};

const FILE: &str = "nsd.conf";

pub(super) const DRIVER: Driver<Serve> = Driver {
    name: "NSD",
    program: Program::Named("nsd"),
    version: Version::Argument("-v"),
    file: FILE,
    configuration,
    command: |setting, program| with(program, &["-d", "-c", &setting.file(FILE)]),
    check: Some(|file| words(&["nsd-checkconf", file])),
    told: Told::ByConfiguration,
    ready: Ready::Answers,
    speaks_ipv6: true,
};

fn configuration(setting: &Setting<'_, Serve>) -> String {
    let (folder, ip, port) = (setting.place(), setting.listen.ip(), setting.listen.port());
    let (threads, extra, zone) = (setting.threads, setting.extra("  "), setting.task.zone.display());
    // Debian's NSD limits the rate of equal answers, which ours are to such a limiter.
    format!(
        "server:\n  server-count: {threads}\n  ip-address: {ip}@{port}\n  username: \"\"\n  zonesdir: \"{folder}\"\n  \
         database: \"\"\n  pidfile: \"{folder}/nsd.pid\"\n  xfrdfile: \"{folder}/xfrd.state\"\n  \
         zonelistfile: \"{folder}/zone.list\"\n  xfrdir: \"{folder}\"\n  reuseport: yes\n  rrl-ratelimit: 0\n{extra}\
         remote-control:\n  control-enable: no\nzone:\n  name: dns64perf.test\n  zonefile: \"{zone}\"\n"
    )
}
