//! PowerDNS Recursor with `dns64-prefix`, as `key=value` file, which versions 4 and 5.0 read.
//! Operators' lines go to its end.

use std::net::SocketAddr;

use super::{Checked, Driver, Program, Ready, Setting, Told, Translate, Version, with};

pub(super) const DRIVER: Driver<Translate> = Driver {
    name: "PowerDNS",
    program: Program::Named("pdns_recursor"),
    version: Version::Argument("--version"),
    file: "recursor.conf",
    configuration,
    command: |setting, program| with(program, &[&format!("--config-dir={}", setting.place())]),
    check: Some(check),
    told: Told::ByConfiguration,
    ready: Ready::Answers,
    speaks_ipv6: true,
    speaks_xdp: false,
};

/// The file in its folder that has trust anchors: only Lua can tell it some.
pub(super) const ANCHORS: &str = "anchors.lua";

/// What is in that file: the anchors of checks in place of the root's.
pub(super) fn anchors(checked: &Checked) -> String {
    let add = |(owner, data): (&str, Vec<&str>)| {
        format!("addTA(\"{}\", \"{}\")\n", owner.trim_end_matches('.'), data.join(" "))
    };
    format!("clearTA()\n{}", checked.of_type("DS").map(add).collect::<String>())
}

/// It takes the folder of its file.
fn check(file: &str) -> Vec<String> {
    let folder = std::path::Path::new(file).parent().unwrap_or(std::path::Path::new("."));
    vec![
        "pdns_recursor".into(),
        format!("--config-dir={}", folder.display()),
        "--config=check".into(),
    ]
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
        // It still knows of DNSSEC, and hands signatures on.
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
