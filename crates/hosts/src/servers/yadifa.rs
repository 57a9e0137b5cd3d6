//! YADIFA. The operator's configuration lines are added to `<main>`. YADIFA has no checker for its
//! configuration file.

use crate::servers::driver::{Driver, Serve, Setting, with};
use crate::servers::zone_file::{ZoneServerConfig, driver};

const FILE: &str = "yadifad.conf";
pub(super) const DRIVER: Driver<Serve> = driver(
    ("YADIFA", "yadifad"),
    "--version",
    (FILE, configuration),
    |setting, program| with(program, &["-c", &setting.file(FILE)]),
    None,
);

fn configuration(setting: &Setting<'_, Serve>) -> String {
    let ZoneServerConfig { folder, ip, port, threads, zone, extra } =
        ZoneServerConfig::by(setting, "  ");
    format!(
        "<main>\n  daemon off\n  listen {ip} port {port}\n  server-port {port}\n  data-path \"{folder}\"\n  \
         keys-path \"{folder}\"\n  log-path \"{folder}\"\n  xfr-path \"{folder}\"\n  pid-file \"{folder}/yadifad.pid\"\n  \
         thread-count-by-address {threads}\n  allow-query any\n  statistics off\n{extra}</main>\n\
         <zone>\n  domain dns64perf.test\n  file {zone}\n  type master\n</zone>\n"
    )
}
