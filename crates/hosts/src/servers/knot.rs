//! Knot DNS. The operator's configuration lines are added to the section `server`.

use crate::servers::driver::{Driver, Serve, Setting, with, words};
use crate::servers::zone_file::{ZoneServerConfig, driver};

const FILE: &str = "knot.conf";
pub(super) const DRIVER: Driver<Serve> = driver(
    ("Knot DNS", "knotd"),
    "--version",
    (FILE, configuration),
    |setting, program| with(program, &["-c", &setting.file(FILE)]),
    Some(|file| words(&["knotc", "-c", file, "conf-check"])),
);

fn configuration(setting: &Setting<'_, Serve>) -> String {
    let ZoneServerConfig { folder, ip, port, threads, zone, extra } =
        ZoneServerConfig::by(setting, "    ");
    format!(
        "server:\n    rundir: \"{folder}\"\n    listen: \"{ip}@{port}\"\n    udp-workers: {threads}\n{extra}\
         database:\n    storage: \"{folder}/db\"\nlog:\n  - target: stderr\n    any: warning\n\
         zone:\n  - domain: dns64perf.test\n    storage: \"{folder}\"\n    file: \"{zone}\"\n    zonefile-load: whole\n"
    )
}
