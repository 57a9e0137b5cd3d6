//! YADIFA. Operators' lines go into `<main>`.

use super::{Driver, Program, Ready, Serve, Setting, Told, Version, with};

const FILE: &str = "yadifad.conf";

pub(super) const DRIVER: Driver<Serve> = Driver {
    name: "YADIFA",
    program: Program::Named("yadifad"),
    version: Version::Argument("--version"),
    file: FILE,
    configuration,
    command: |setting, program| with(program, &["-c", &setting.file(FILE)]),
    check: None,
    told: Told::ByConfiguration,
    ready: Ready::Answers,
    speaks_ipv6: true,
};

fn configuration(setting: &Setting<'_, Serve>) -> String {
    let (folder, ip, port) = (setting.place(), setting.listen.ip(), setting.listen.port());
    let (threads, extra, zone) = (setting.threads, setting.extra("  "), setting.task.zone.display());
    format!(
        "<main>\n  daemon off\n  listen {ip} port {port}\n  server-port {port}\n  data-path \"{folder}\"\n  \
         keys-path \"{folder}\"\n  log-path \"{folder}\"\n  xfr-path \"{folder}\"\n  pid-file \"{folder}/yadifad.pid\"\n  \
         thread-count-by-address {threads}\n  allow-query any\n  statistics off\n{extra}</main>\n\
         <zone>\n  domain dns64perf.test\n  file {zone}\n  type master\n</zone>\n"
    )
}
