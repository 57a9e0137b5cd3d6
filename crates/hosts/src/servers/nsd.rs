//! NSD. The operator's configuration lines are added to the section `server`.

use crate::servers::driver::{Driver, Serve, Setting, with, words};
use crate::servers::zone_file::{ZoneServerConfig, driver};

const FILE: &str = "nsd.conf";
pub(super) const DRIVER: Driver<Serve> = driver(
    ("NSD", "nsd"),
    "-v",
    (FILE, configuration),
    |setting, program| with(program, &["-d", "-c", &setting.file(FILE)]),
    Some(|file| words(&["nsd-checkconf", file])),
);

fn configuration(setting: &Setting<'_, Serve>) -> String {
    let ZoneServerConfig { folder, ip, port, threads, zone, extra } =
        ZoneServerConfig::by(setting, "  ");
    // Debian's NSD limits the rate of identical answers by default, and the answers in a trial
    // would count as identical.
    format!(
        "server:\n  server-count: {threads}\n  ip-address: {ip}@{port}\n  username: \"\"\n  zonesdir: \"{folder}\"\n  \
         database: \"\"\n  pidfile: \"{folder}/nsd.pid\"\n  xfrdfile: \"{folder}/xfrd.state\"\n  \
         zonelistfile: \"{folder}/zone.list\"\n  xfrdir: \"{folder}\"\n  reuseport: yes\n  rrl-ratelimit: 0\n{extra}\
         remote-control:\n  control-enable: no\nzone:\n  name: dns64perf.test\n  zonefile: \"{zone}\"\n"
    )
}
