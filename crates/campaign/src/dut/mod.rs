//! The servers that a campaign measures: how each is configured, started and asked for its version.
//!
//! A driver is data: names, and functions from a [`Setting`] to configuration files and arguments. Starting, watching and
//! stopping is the same for all ([`crate::site`]).

mod bind;
mod coredns;
mod dns64d;
mod knot_resolver;
mod mtd64_ng;
mod powerdns;
mod unbound;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tester::measurer::expect::Prefix;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// ISC BIND 9.
    Bind,
    /// NLnet Labs Unbound.
    Unbound,
    /// PowerDNS Recursor.
    Powerdns,
    /// CZ.NIC Knot Resolver (kresd, version 5).
    KnotResolver,
    /// CoreDNS with its plugins `dns64`, `forward` and `cache`.
    Coredns,
    /// mtd64-ng, the papers' own server; its program must be given.
    Mtd64Ng,
    /// Our own.
    Dns64d,
    /// Whatever the plan's commands start.
    Custom,
}

/// Commands of the driver `custom`, run on the DUT's host. `{listen}`, `{port}`, `{upstream}`, `{upstream-port}`, `{prefix}`,
/// `{cores}` and `{folder}` are replaced, but for `version`, which is asked when nothing runs yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Custom {
    /// Program and arguments. It stays in the foreground and ends on SIGTERM, unless there is `stop`.
    pub start: Vec<String>,
    /// Succeeds when the server is ready; asked again and again. The tester asks the server itself in any case.
    pub ready: Vec<String>,
    /// Ends the server; then `start` may return at once, as `systemctl start` does.
    pub stop: Vec<String>,
    /// Prints the ids of the processes whose CPU time is the server's; none: what `start` started.
    pub cpu_pids: Vec<String>,
    /// Prints its version.
    pub version: Vec<String>,
}

/// What stands in braces in the commands of the driver `custom`, and is replaced.
pub const PLACEHOLDERS: [&str; 7] = ["listen", "port", "upstream", "upstream-port", "prefix", "cores", "folder"];

/// What a server is to do.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// Folder for its files.
    pub folder: &'a Path,
    /// Where it listens.
    pub listen: SocketAddr,
    /// AuthDNS.
    pub upstream: SocketAddr,
    /// DNS64 prefix.
    pub prefix: Prefix,
    /// Cores, and so threads.
    pub cores: usize,
    /// Commands of the driver `custom`.
    pub custom: Option<&'a Custom>,
}

/// How to run a server.
struct Driver {
    name: &'static str,
    program: &'static str,
    version: &'static [&'static str],
    /// Arguments with which it checks its configuration, if it can.
    check: Option<fn(&Setting<'_>) -> Vec<String>>,
    configuration: fn(&Setting<'_>) -> (&'static str, String),
    arguments: fn(&Setting<'_>) -> Vec<String>,
}

const CUSTOM: Driver = Driver {
    name: "custom",
    program: "",
    version: &[],
    check: None,
    configuration: |_| ("none", String::new()),
    arguments: |setting| setting.custom.map(|custom| setting.fill(&custom.start)).unwrap_or_default(),
};

impl Kind {
    /// All that need no commands of the plan.
    pub const ALL: [Kind; 7] =
        [Kind::Bind, Kind::Unbound, Kind::Powerdns, Kind::KnotResolver, Kind::Coredns, Kind::Mtd64Ng, Kind::Dns64d];

    fn driver(self) -> &'static Driver {
        match self {
            Kind::Bind => &bind::DRIVER,
            Kind::Unbound => &unbound::DRIVER,
            Kind::Powerdns => &powerdns::DRIVER,
            Kind::KnotResolver => &knot_resolver::DRIVER,
            Kind::Coredns => &coredns::DRIVER,
            Kind::Mtd64Ng => &mtd64_ng::DRIVER,
            Kind::Dns64d => &dns64d::DRIVER,
            Kind::Custom => &CUSTOM,
        }
    }

    /// The server's name.
    pub fn name(self) -> &'static str {
        self.driver().name
    }

    /// Its program's name; empty for `custom`.
    pub fn program(self) -> &'static str {
        self.driver().program
    }

    /// Arguments that make it print its version.
    pub fn version_arguments(self) -> &'static [&'static str] {
        self.driver().version
    }

    /// Its configuration file: name and text.
    pub fn configuration(self, setting: &Setting<'_>) -> (&'static str, String) {
        (self.driver().configuration)(setting)
    }

    /// The command that runs it: `program` (none for `custom`, whose commands name it) with its arguments, and with what some
    /// need around it.
    pub fn command(self, setting: &Setting<'_>, program: &[String]) -> Vec<String> {
        match self {
            Kind::Coredns => coredns::command(setting, program),
            Kind::Mtd64Ng => mtd64_ng::command(setting, program),
            _ => [program, &(self.driver().arguments)(setting)].concat(),
        }
    }

    /// Program and arguments with which the server itself checks its configuration, where there is such a thing.
    pub fn check_arguments(self, setting: &Setting<'_>) -> Option<Vec<String>> {
        self.driver().check.map(|check| check(setting))
    }
}

impl Setting<'_> {
    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    fn place(&self) -> String {
        self.folder.to_string_lossy().into_owned()
    }

    /// Replaces the words in braces.
    pub fn fill(&self, words: &[String]) -> Vec<String> {
        let values = [
            self.listen.ip().to_string(),
            self.listen.port().to_string(),
            self.upstream.ip().to_string(),
            self.upstream.port().to_string(),
            self.prefix.to_string(),
            self.cores.to_string(),
            self.place(),
        ];
        let pairs: Vec<(String, String)> = PLACEHOLDERS.iter().map(|name| format!("{{{name}}}")).zip(values).collect();
        let fill = |word: &String| pairs.iter().fold(word.clone(), |word, (name, value)| word.replace(name, value));
        words.iter().map(fill).collect()
    }
}

/// Where a program is: as given, beside this program, on the path, or among the system's own.
pub fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.into());
    }
    let ours = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = ours.into_iter().chain(std::env::split_paths(&path)).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn setting(folder: &Path) -> Setting<'_> {
        Setting {
            folder,
            listen: "[2001:2::1]:53".parse().unwrap(),
            upstream: "198.18.0.2:53".parse().unwrap(),
            prefix: "64:ff9b::/96".parse().unwrap(),
            cores: 2,
            custom: None,
        }
    }

    /// What matters of each configuration. A change here changes what is measured.
    #[test]
    fn configurations_say_what_is_measured() {
        for kind in Kind::ALL {
            let (_, text) = kind.configuration(&setting(Path::new("/run/x")));
            for word in ["2001:2::1", "198.18.0.2", "64:ff9b::"] {
                assert!(text.contains(word), "{kind:?} has no {word}:\n{text}");
            }
            let arguments = kind.command(&setting(Path::new("/run/x")), &[]).join(" ");
            let both = format!("{text}{arguments}");
            assert!(both.contains("/run/x"), "{kind:?}: {both}");
            let threads = ["num-threads: 2", "threads=2", "threads = 2", "-n 2", "GOMAXPROCS=2", "num-threads 2"];
            // Those that are one process, or find out themselves.
            let fixed = kind == Kind::KnotResolver;
            assert!(fixed || threads.iter().any(|t| both.contains(t)), "{kind:?}: {both}");
        }
    }

    /// The whole files, as they were looked at: what a server is told decides what is measured. `BLESS=1` writes them anew.
    #[test]
    fn configurations_are_those_that_were_looked_at() {
        for kind in Kind::ALL {
            let setting = setting(Path::new("/run/x"));
            let (name, text) = kind.configuration(&setting);
            let words = kind.command(&setting, &["PROGRAM".to_owned()]).join(" ");
            crate::golden::check(&format!("{kind:?}"), &format!("{words}\n--- {name}\n{text}"));
        }
    }

    #[test]
    fn the_servers_own_checkers_accept_them() {
        let folder = tempfile::tempdir().unwrap();
        for kind in Kind::ALL {
            let setting = setting(folder.path());
            let Some(words) = kind.check_arguments(&setting) else { continue };
            let Some(program) = find(Path::new(&words[0])) else {
                eprintln!("SKIPPED {kind:?}: {} not found", words[0]);
                continue;
            };
            let (name, text) = kind.configuration(&setting);
            std::fs::write(folder.path().join(name), &text).unwrap();
            let output = Command::new(program).args(&words[1..]).output().unwrap();
            assert!(output.status.success(), "{kind:?}: {}\n{text}", String::from_utf8_lossy(&output.stderr));
        }
    }

    #[test]
    fn custom_commands_are_filled_in() {
        let custom =
            Custom { start: vec!["x".into(), "{listen}#{port}".into(), "-t{cores}".into()], ..Custom::default() };
        let setting = Setting { custom: Some(&custom), ..setting(Path::new("/f")) };
        assert_eq!(Kind::Custom.command(&setting, &[]), ["x", "2001:2::1#53", "-t2"]);
    }
}
