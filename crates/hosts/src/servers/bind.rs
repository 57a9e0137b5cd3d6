//! BIND 9, as a forwarder with `dns64` and as an authoritative server. The operator's configuration
//! lines are added to `options`.

use crate::servers::driver::{
    Checked, Driver, Program, Ready, Serve, Setting, ThreadOption, Translate, Version, with,
};

const FILE: &str = "named.conf";
pub(super) const DNS64: Driver<Translate> = Driver {
    name: "BIND",
    program: Program::Named("named"),
    version: Version::Argument("-V"),
    file: FILE,
    configuration: dns64,
    command,
    check: Some(check),
    thread_option: ThreadOption::ByCommand,
    ready: Ready::Answers,
    supports_ipv6: true,
    supports_xdp: false,
    later: &[],
};
pub(super) const AUTHORITATIVE: Driver<Serve> = Driver {
    name: "BIND",
    program: Program::Named("named"),
    version: Version::Argument("-V"),
    file: FILE,
    configuration: authoritative,
    command,
    check: Some(check),
    thread_option: ThreadOption::ByCommand,
    ready: Ready::Answers,
    supports_ipv6: true,
    supports_xdp: false,
    later: &[],
};

fn command<T>(setting: &Setting<'_, T>, program: &[String]) -> Vec<String> {
    with(program, &["-f", "-n", &setting.threads.to_string(), "-c", &setting.file(FILE)])
}

fn check(file: &str) -> Vec<String> {
    vec!["named-checkconf".into(), file.into()]
}

/// Returns the first part of the configuration: files and listen address. This part is the same for a DNS64 server and
/// an authoritative server.
fn head<T>(setting: &Setting<'_, T>) -> String {
    let (place, ip, port) = (setting.place(), setting.listen.ip(), setting.listen.port());
    let (on, off) =
        if ip.is_ipv6() { ("listen-on-v6", "listen-on") } else { ("listen-on", "listen-on-v6") };
    format!(
        "options {{\n  directory \"{place}\";\n  pid-file none;\n  session-keyfile none;\n  {off} {{ none; }};\n  \
         {on} port {port} {{ {ip}; }};\n"
    )
}

/// Part of the configuration that follows `options`. This part disables the control channel and the
/// log.
const TAIL: &str = "controls { };\nlogging { category default { null; }; };\n";

fn dns64(setting: &Setting<'_, Translate>) -> String {
    let Translate { prefixes, checked, .. } = &setting.task;
    let forwarders = setting.task.each_upstream(|ip, port| format!("{ip} port {port}; "));
    let validates = checked.as_ref().is_some_and(Checked::validates);
    let validation = if validates { "yes" } else { "no" };
    // An explicit list replaces the ranges that BIND excludes by default.
    let excluded = checked.as_ref().and_then(|checked| checked.excluded);
    let exclude =
        excluded.map_or(String::new(), |range| format!(" exclude {{ ::ffff:0:0/96; {range}; }};"));
    let dns64: String = prefixes
        .iter()
        .map(|prefix| format!("  dns64 {prefix} {{ clients {{ any; }};{exclude} }};\n"))
        .collect();
    let built_in = if checked.is_some() { built_in_zones() } else { String::new() };
    format!(
        "{}  recursion yes;\n  allow-query {{ any; }};\n  allow-recursion {{ any; }};\n  \
         dnssec-validation {validation};\n  forward only;\n  forwarders {{ {forwarders}}};\n  empty-zones-enable no;\n  \
         max-cache-size 1g;\n  recursive-clients 10000;\n{dns64}{}}};\n{TAIL}{built_in}{}",
        head(setting),
        setting.extra("  "),
        checked.as_ref().filter(|_| validates).map_or(String::new(), trust_anchors)
    )
}

/// Returns configuration that exempts BIND's built-in zones (RFC 8880 §7) from forwarding. Otherwise the option
/// `forward only` would disable these zones. The alternative option `forward first` would query the root servers after
/// each error from AuthDNS.
fn built_in_zones() -> String {
    ["ipv4only.arpa", "170.0.0.192.in-addr.arpa", "171.0.0.192.in-addr.arpa"]
        .map(|name| format!("zone \"{name}\" {{ type forward; forwarders {{ }}; }};\n"))
        .concat()
}

/// Returns configuration that makes the keys of the signed zones the only trust anchors. All other zones are insecure,
/// because the root's key is absent.
fn trust_anchors(checked: &Checked) -> String {
    let key = |(owner, data): (&str, Vec<&str>)| {
        let [flags, protocol, algorithm, key @ ..] = data.as_slice() else { return String::new() };
        format!("  \"{owner}\" static-key {flags} {protocol} {algorithm} \"{}\";\n", key.concat())
    };
    format!("trust-anchors {{\n{}}};\n", checked.of_type("DNSKEY").map(key).collect::<String>())
}

fn authoritative(setting: &Setting<'_, Serve>) -> String {
    format!(
        "{}  recursion no;\n  allow-query {{ any; }};\n{}}};\n{TAIL}\
         zone \"dns64perf.test\" {{ type primary; file \"{}\"; notify no; }};\n",
        head(setting),
        setting.extra("  "),
        setting.task.zone.display()
    )
}
