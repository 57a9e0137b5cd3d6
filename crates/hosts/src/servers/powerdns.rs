//! PowerDNS Recursor with its option `dns64-prefix`. The operator's configuration lines have the form `key=value` for
//! all releases. Releases before 5.0 read `recursor.conf`, and the operator's lines are added to the end of this file.
//! Later releases read `recursor.yml`, and the operator's lines become command-line options, which override this file.

use std::net::SocketAddr;

use crate::servers::driver::{
    Checked, Driver, Program, Ready, Setting, ThreadOption, Translate, Version, with,
};
use crate::servers::release::Release;

pub(super) const DRIVER: Driver<Translate> =
    Driver { later: &[(Release(5, 0), OF_YAML)], ..OF_LINES };
/// Driver for releases that read the configuration file `recursor.yml`.
const OF_YAML: Driver<Translate> = Driver {
    file: "recursor.yml",
    configuration: yaml,
    command: |setting, program| {
        let option = |line: &String| {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            format!("--{}={}", key.trim(), value.trim())
        };
        let folder = with(program, &[&format!("--config-dir={}", setting.place())]);
        folder.into_iter().chain(setting.operator.extra.iter().map(option)).collect()
    },
    ..OF_LINES
};
/// Driver for releases that read the configuration file `recursor.conf`.
const OF_LINES: Driver<Translate> = Driver {
    name: "PowerDNS",
    program: Program::Named("pdns_recursor"),
    version: Version::Argument("--version"),
    file: "recursor.conf",
    configuration,
    command: |setting, program| with(program, &[&format!("--config-dir={}", setting.place())]),
    check: Some(check),
    thread_option: ThreadOption::ByConfiguration,
    ready: Ready::Answers,
    supports_ipv6: true,
    supports_xdp: false,
    later: &[],
};
/// Name of a Lua file in the server's folder. The file contains the trust anchors, because PowerDNS can set them only
/// in Lua.
pub(super) const ANCHORS: &str = "anchors.lua";

/// Returns the contents of the Lua file. It replaces the root's trust anchors with the trust anchors for conformance
/// checks.
pub(super) fn anchors(checked: &Checked) -> String {
    let add = |(owner, data): (&str, Vec<&str>)| {
        format!("addTA(\"{}\", \"{}\")\n", owner.trim_end_matches('.'), data.join(" "))
    };
    format!("clearTA()\n{}", checked.of_type("DS").map(add).collect::<String>())
}

/// Returns the command that checks the configuration file `file`. The option `--config-dir` gives the folder of this
/// file.
fn check(file: &str) -> Vec<String> {
    let folder = std::path::Path::new(file).parent().unwrap_or(std::path::Path::new("."));
    vec![
        "pdns_recursor".into(),
        format!("--config-dir={}", folder.display()),
        "--config=check".into(),
    ]
}

fn yaml(setting: &Setting<'_, Translate>) -> String {
    let Setting { listen, threads, task, .. } = setting;
    let (place, prefix) = (setting.place(), task.prefix());
    let upstreams = task.each_upstream(|ip, port| format!("'{}', ", SocketAddr::new(ip, port)));
    let upstreams = upstreams.trim_end_matches(", ");
    let all = ("forward_zones_recurse", ".");
    let (validation, lua, (forward, zone)) = match &task.checked {
        None => ("off", String::new(), ("forward_zones", "dns64perf.test")),
        Some(checked) if checked.validates() => {
            ("validate", format!("  lua_config_file: '{}'\n", setting.file(ANCHORS)), all)
        }
        // In this mode, DNSSEC records are still sent to the client.
        Some(_) => ("process-no-validate", String::new(), all),
    };
    format!(
        "incoming:\n  listen: ['{listen}']\n  allow_from: ['::/0', '0.0.0.0/0']\n  \
         pdns_distributes_queries: false\n  reuseport: true\n\
         outgoing:\n  dont_query: []\n\
         dnssec:\n  validation: '{validation}'\n\
         recordcache:\n  max_entries: 4000000\n\
         packetcache:\n  max_entries: 2000000\n\
         logging:\n  quiet: true\n  loglevel: 3\n\
         recursor:\n  socket_dir: '{place}'\n  daemon: false\n  write_pid: false\n  threads: {threads}\n  \
         dns64_prefix: '{prefix}'\n{lua}  {forward}:\n    - zone: '{zone}'\n      forwarders: [{upstreams}]\n"
    )
}

fn configuration(setting: &Setting<'_, Translate>) -> String {
    let Setting { listen, threads, task, .. } = setting;
    let prefix = task.prefix();
    let upstreams = task.each_upstream(|ip, port| format!("{};", SocketAddr::new(ip, port)));
    let upstreams = upstreams.trim_end_matches(';');
    let everything = format!("forward-zones-recurse=.={upstreams}");
    let (dnssec, forwarded) = match &task.checked {
        None => ("off".into(), format!("forward-zones=dns64perf.test={upstreams}")),
        Some(checked) if checked.validates() => {
            (format!("validate\nlua-config-file={}", setting.file(ANCHORS)), everything)
        }
        // In this mode, DNSSEC records are still sent to the client.
        Some(_) => ("process-no-validate".into(), everything),
    };
    format!(
        "local-address={}\nlocal-port={}\nallow-from=::/0,0.0.0.0/0\nsocket-dir={}\ndaemon=no\nthreads={threads}\n\
         pdns-distributes-queries=no\nreuseport=yes\ndnssec={dnssec}\nquiet=yes\nloglevel=3\nwrite-pid=no\n\
         {forwarded}\ndns64-prefix={prefix}\nmax-cache-entries=4000000\n\
         max-packetcache-entries=2000000\ndont-query=\n{}",
        listen.ip(),
        listen.port(),
        setting.place(),
        setting.extra("")
    )
}
