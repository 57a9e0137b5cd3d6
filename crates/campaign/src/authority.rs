//! Authoritative servers that can stand in for our AuthDNS, with our zone file, as seed 001 compares them.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Zone file, beside the configuration.
pub const ZONE_FILE: &str = "dns64perf.test.zone";

/// Which server plays AuthDNS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Our own, which counts what it is asked.
    #[default]
    Dns64bench,
    /// NLnet Labs NSD.
    Nsd,
    /// CZ.NIC Knot DNS.
    Knot,
    /// ISC BIND 9.
    Bind,
    /// EURid YADIFA.
    Yadifa,
}

/// What an authoritative server is to do.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// Folder for its files, the zone file among them.
    pub folder: &'a str,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Threads or processes that serve.
    pub threads: usize,
}

impl Kind {
    /// All that need a zone file.
    pub const OTHERS: [Kind; 4] = [Kind::Nsd, Kind::Knot, Kind::Bind, Kind::Yadifa];

    /// What the report calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Dns64bench => "AuthDNS",
            Kind::Nsd => "NSD",
            Kind::Knot => "Knot DNS",
            Kind::Bind => "BIND",
            Kind::Yadifa => "YADIFA",
        }
    }

    /// Its program's name.
    pub fn program(self) -> &'static str {
        match self {
            Kind::Dns64bench => "dns64bench",
            Kind::Nsd => "nsd",
            Kind::Knot => "knotd",
            Kind::Bind => "named",
            Kind::Yadifa => "yadifad",
        }
    }

    /// Arguments with which it prints its version.
    pub fn version_arguments(self) -> &'static [&'static str] {
        match self {
            Kind::Nsd => &["-v"],
            Kind::Bind => &["-V"],
            _ => &["--version"],
        }
    }

    /// Its configuration, for a file named [`Kind::file`]; ours has none.
    pub fn configuration(self, setting: &Setting<'_>) -> String {
        let Setting { folder, listen, threads } = setting;
        let (ip, port) = (listen.ip(), listen.port());
        match self {
            Kind::Dns64bench => String::new(),
            // Debian's NSD limits the rate of equal answers, which ours are to such a limiter.
            Kind::Nsd => format!(
                "server:\n  server-count: {threads}\n  ip-address: {ip}@{port}\n  username: \"\"\n  zonesdir: \"{folder}\"\n  \
                 database: \"\"\n  pidfile: \"{folder}/nsd.pid\"\n  xfrdfile: \"{folder}/xfrd.state\"\n  \
                 zonelistfile: \"{folder}/zone.list\"\n  xfrdir: \"{folder}\"\n  reuseport: yes\n  rrl-ratelimit: 0\n\
                 remote-control:\n  control-enable: no\nzone:\n  name: dns64perf.test\n  zonefile: {ZONE_FILE}\n"
            ),
            Kind::Knot => format!(
                "server:\n    rundir: \"{folder}\"\n    listen: \"{ip}@{port}\"\n    udp-workers: {threads}\n\
                 database:\n    storage: \"{folder}/db\"\nlog:\n  - target: stderr\n    any: warning\n\
                 zone:\n  - domain: dns64perf.test\n    storage: \"{folder}\"\n    file: \"{ZONE_FILE}\"\n    zonefile-load: whole\n"
            ),
            Kind::Bind => {
                let (on, off) = if listen.is_ipv6() { ("-v6", "") } else { ("", "-v6") };
                format!(
                    "options {{\n  directory \"{folder}\";\n  pid-file none;\n  session-keyfile none;\n  listen-on{off} {{ none; }};\n  \
                     listen-on{on} port {port} {{ {ip}; }};\n  recursion no;\n  allow-query {{ any; }};\n}};\ncontrols {{ }};\n\
                     logging {{ category default {{ null; }}; }};\n\
                     zone \"dns64perf.test\" {{ type primary; file \"{ZONE_FILE}\"; notify no; }};\n"
                )
            }
            Kind::Yadifa => format!(
                "<main>\n  daemon off\n  listen {ip} port {port}\n  server-port {port}\n  data-path \"{folder}\"\n  \
                 keys-path \"{folder}\"\n  log-path \"{folder}\"\n  xfr-path \"{folder}\"\n  pid-file \"{folder}/yadifad.pid\"\n  \
                 thread-count-by-address {threads}\n  allow-query any\n  statistics off\n</main>\n\
                 <zone>\n  domain dns64perf.test\n  file {ZONE_FILE}\n  type master\n</zone>\n"
            ),
        }
    }

    /// Name of its configuration file.
    pub fn file(self) -> &'static str {
        match self {
            Kind::Dns64bench => "",
            Kind::Nsd => "nsd.conf",
            Kind::Knot => "knot.conf",
            Kind::Bind => "named.conf",
            Kind::Yadifa => "yadifad.conf",
        }
    }

    /// Its arguments; ours gets its own where it is started.
    pub fn arguments(self, setting: &Setting<'_>) -> Vec<String> {
        let file = format!("{}/{}", setting.folder, self.file());
        let words: &[&str] = match self {
            Kind::Dns64bench => &[],
            Kind::Nsd => &["-d", "-c", &file],
            Kind::Knot | Kind::Yadifa => &["-c", &file],
            Kind::Bind => &["-f", "-n", &setting.threads.to_string(), "-c", &file],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As with the DUTs' configurations.
    #[test]
    fn configurations_are_those_that_were_looked_at() {
        let setting = Setting { folder: "/run/x", listen: "198.18.0.2:53".parse().unwrap(), threads: 2 };
        for kind in Kind::OTHERS {
            let words = kind.arguments(&setting).join(" ");
            let text = format!("{} {words}\n--- {}\n{}", kind.program(), kind.file(), kind.configuration(&setting));
            crate::golden::check(&format!("auth-{kind:?}"), &text);
        }
    }
}
