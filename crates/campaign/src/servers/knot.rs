//! Knot DNS. Operators' lines go into `server`.

use super::{Driver, Program, Ready, Serve, Setting, Told, Version, with, words};

const FILE: &str = "knot.conf";

pub(super) const DRIVER: Driver<Serve> = Driver {
    name: "Knot DNS",
    program: Program::Named("knotd"),
    version: Version::Argument("--version"),
    file: FILE,
    configuration,
    command: |setting, program| with(program, &["-c", &setting.file(FILE)]),
    check: Some(|file| words(&["knotc", "-c", file, "conf-check"])),
    told: Told::ByConfiguration,
    ready: Ready::Answers,
    speaks_ipv6: true,
};

fn configuration(setting: &Setting<'_, Serve>) -> String {
    let (folder, ip, port) = (setting.place(), setting.listen.ip(), setting.listen.port());
    let (threads, extra, zone) = (setting.threads, setting.extra("    "), setting.task.zone.display());
    format!(
        "server:\n    rundir: \"{folder}\"\n    listen: \"{ip}@{port}\"\n    udp-workers: {threads}\n{extra}\
         database:\n    storage: \"{folder}/db\"\nlog:\n  - target: stderr\n    any: warning\n\
         zone:\n  - domain: dns64perf.test\n    storage: \"{folder}\"\n    file: \"{zone}\"\n    zonefile-load: whole\n"
    )
}
