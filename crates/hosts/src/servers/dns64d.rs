//! Driver for the server dns64d. The operator's configuration lines are added to the end of the
//! configuration file, so they may begin tables such as `[limits]`.

use crate::servers::driver::{
    ANCHORS, Checked, Driver, Program, Ready, Setting, ThreadOption, Translate, Version, with,
    words,
};

const FILE: &str = "dns64d.toml";
pub(super) const DRIVER: Driver<Translate> = Driver {
    name: "dns64d",
    program: Program::Own { name: "dns64d", words: &["dns64d"] },
    version: Version::Argument("--version"),
    file: FILE,
    configuration,
    command: |setting, program| with(program, &["--config", &setting.file(FILE)]),
    check: Some(|file| words(&["dns64d", "--config", file, "check"])),
    thread_option: ThreadOption::ByConfiguration,
    ready: Ready::Answers,
    supports_ipv6: true,
    supports_xdp: true,
    later: &[],
};

fn configuration(setting: &Setting<'_, Translate>) -> String {
    let Setting { listen, threads, task, .. } = setting;
    let Translate { prefixes, checked, .. } = task;
    // The names of trials have private IPv4 addresses. By default, dns64d does not embed these
    // addresses in the Well-Known Prefix (RFC 6052 §3.1). Conformance checks test this default.
    let non_global = if checked.is_some() { "" } else { ", allow-non-global = true" };
    let prefixes: Vec<String> =
        prefixes.iter().map(|prefix| format!("{{ prefix = '{prefix}'{non_global} }}")).collect();
    // An explicit list replaces the ranges that dns64d excludes by default.
    let excluded = checked.as_ref().and_then(|checked| checked.excluded);
    let exclude =
        excluded.map_or(String::new(), |range| format!("exclude = ['::ffff:0:0/96', '{range}']\n"));
    // The other servers do not validate either, so that the rates can be compared.
    let of_operator = setting.operator.extra.iter().any(|line| line.trim() == "[dnssec]");
    let dnssec = match checked.as_ref().is_some_and(Checked::validates) {
        true => {
            format!("[dnssec]\nvalidate = true\ntrust-anchors = '{}'\n\n", setting.file(ANCHORS))
        }
        false if of_operator => String::new(),
        false => "[dnssec]\nvalidate = false\n\n".to_owned(),
    };
    let (listen, of_upstream) = match setting.operator.xdp {
        None => (format!("listen = ['{listen}']"), ""),
        Some(mode) => {
            let listen = format!("listen = [{{ address = '{listen}', xdp = true }}]");
            let mode = mode.word();
            // Results that are published as AF_XDP results must not be measured with sockets.
            let keys = format!("{listen}\nxdp-mode = '{mode}'\nxdp-fallback = false");
            (keys, "xdp = true\n")
        }
    };
    let upstreams = task.each_upstream(|ip, port| {
        format!("[[upstream]]\naddress = '{ip}'\nport = {port}\n{of_upstream}")
    });
    format!(
        "# Started by dns64bench in {}.\n{listen}\nthreads = {threads}\n\n[access]\nallow = ['::/0', '0.0.0.0/0']\n\
         open-resolver = true\n\n[cache]\nmebibytes = 1024\n\n[dns64]\nprefixes = [{}]\n{exclude}\n\
         {dnssec}{upstreams}{}",
        setting.place(),
        prefixes.join(", "),
        setting.extra("")
    )
}
