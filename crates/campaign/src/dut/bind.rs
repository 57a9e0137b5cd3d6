//! BIND 9 as a forwarder with `dns64`.

use super::{Driver, Setting};

pub(super) const DRIVER: Driver = Driver {
    name: "BIND",
    program: "named",
    version: &["-V"],
    check: Some(|setting| vec!["named-checkconf".into(), setting.file(FILE)]),
    configuration,
    arguments: |setting| ["-f", "-n", &setting.cores.to_string(), "-c", &setting.file(FILE)].map(str::to_owned).into(),
};

const FILE: &str = "named.conf";

fn configuration(setting: &Setting<'_>) -> (&'static str, String) {
    let Setting { listen, upstream, prefix, .. } = setting;
    let (place, port) = (setting.place(), listen.port());
    let (on, off) = if listen.is_ipv6() { ("listen-on-v6", "listen-on") } else { ("listen-on", "listen-on-v6") };
    let text = format!(
        "options {{\n  directory \"{place}\";\n  pid-file none;\n  session-keyfile none;\n  {off} {{ none; }};\n  \
         {on} port {port} {{ {}; }};\n  recursion yes;\n  allow-query {{ any; }};\n  allow-recursion {{ any; }};\n  \
         dnssec-validation no;\n  forward only;\n  forwarders {{ {} port {}; }};\n  empty-zones-enable no;\n  \
         max-cache-size 1g;\n  recursive-clients 10000;\n  dns64 {prefix} {{ clients {{ any; }}; }};\n}};\n\
         controls {{ }};\nlogging {{ category default {{ null; }}; }};\n",
        listen.ip(),
        upstream.ip(),
        upstream.port()
    );
    (FILE, text)
}
