//! Server programs that a campaign controls, as a DUT or as an AuthDNS server. The module for a
//! program describes its configuration, start command, configuration check and version query. The
//! module contains two drivers if the program supports both roles.
//!
//! ```text
//! plan ─► Dut, Auth (program) ─► Driver ─┬─ configuration ─► file ─┐
//!                                   ▲    ├─ command ───────────────┼─► campaign, `cargo xtask compat`
//!        Setting (folder, addresses, │    └─ version, check ────────┘
//!        threads, task) ─────────────┘
//! ```
//!
//! A driver is data: names, and functions that turn a [`Setting`] into a configuration text or a command. A driver
//! starts no process. The code that starts, observes and stops processes is the same for all servers, and is in other
//! modules. Only [`find`] and [`OperatorFile::read`] access files.

mod bind;
mod coredns;
mod custom;
mod dns64bench;
mod dns64d;
mod driver;
mod knot;
mod knot_resolver;
mod mtd64_ng;
mod nsd;
mod operator;
mod powerdns;
mod release;
mod unbound;
mod variant;
mod yadifa;
mod zone_file;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tester::measurer::expect::Prefix;

pub use driver::{
    CHECKED_ZONE, Checked, Driver, Program, Ready, Serve, Setting, Task, Translate, ZONE_FILE,
};
pub use operator::{
    Custom, Operator, OperatorFile, unknown_placeholder, unknown_placeholder_error,
};
pub use release::Release;
pub use variant::Variant;

/// Defines the enum of all server programs that can be used in a role (DUT or AuthDNS). Each variant corresponds to a
/// program name in plans and to the driver of this program.
macro_rules! kinds {
    ($(#[$about:meta])* $name:ident for $task:ty { $($(#[$of:meta])* $kind:ident => $driver:expr,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$of])* $kind,)*
        }

        impl $name {
            /// All server programs of this role.
            pub const ALL: &'static [$name] = &[$($name::$kind),*];

            /// Returns the driver of the server program.
            pub fn driver(self) -> &'static Driver<$task> {
                match self {
                    $($name::$kind => &$driver,)*
                }
            }

            /// Returns the name of the server program in reports.
            pub fn name(self) -> &'static str {
                self.driver().name
            }
        }
    };
}

impl Dut {
    /// Returns the names of files in the server's folder that are large or contain state. The
    /// server rewrites these files at every start.
    pub fn bulk(self) -> &'static [&'static str] {
        match self {
            // The first files are cache files, which have their full size from the start. The other
            // files are those of version 6.
            Dut::KnotResolver => {
                &["data.mdb", "lock.mdb", "ruledb/data.mdb", "ruledb/lock.mdb", "top", "defer"]
            }
            _ => &[],
        }
    }

    /// Returns true if the driver configures DNSSEC validation for conformance checks. Returns `None` for the driver
    /// `custom`, because validation then depends on the plan's commands.
    pub fn validates(self) -> Option<bool> {
        match self {
            Dut::Bind | Dut::Unbound | Dut::Powerdns | Dut::KnotResolver | Dut::Dns64d => {
                Some(true)
            }
            Dut::Coredns | Dut::Mtd64Ng => Some(false),
            Dut::Custom => None,
        }
    }

    /// Returns the name and the contents of the file with the trust anchors for conformance checks.
    /// The file is in the server's folder.
    pub fn anchors(self, checked: &Checked) -> (&'static str, String) {
        match self {
            Dut::Powerdns => (powerdns::ANCHORS, powerdns::anchors(checked)),
            // The drivers except that of dns64d write the trust anchors into the configuration. This file is also
            // provided for the operator's configuration files, which may refer to it.
            _ => {
                (driver::ANCHORS, checked.anchors.iter().map(|line| format!("{line}\n")).collect())
            }
        }
    }
}

impl Auth {
    /// Returns the names of large files in the AuthDNS server's folder. [`Dut::bulk`] does the same for a DUT.
    pub fn bulk(self) -> &'static [&'static str] {
        if self.is_ours() { &[] } else { &[ZONE_FILE] }
    }
}

kinds! {
    /// Server program of a DUT.
    Dut for Translate {
        /// ISC BIND 9.
        Bind => bind::DNS64,
        /// NLnet Labs Unbound.
        Unbound => unbound::DRIVER,
        /// PowerDNS Recursor.
        Powerdns => powerdns::DRIVER,
        /// CZ.NIC Knot Resolver (kresd, version 5 or 6).
        KnotResolver => knot_resolver::DRIVER,
        /// CoreDNS with its plugins `dns64`, `forward` and `cache`.
        Coredns => coredns::DRIVER,
        /// mtd64-ng. The plan must give the path of its program.
        Mtd64Ng => mtd64_ng::DRIVER,
        /// dns64d.
        Dns64d => dns64d::DRIVER,
        /// Any server that is started by commands in the plan.
        Custom => custom::DRIVER,
    }
}

kinds! {
    /// Server program that acts as AuthDNS.
    #[derive(Default)]
    Auth for Serve {
        /// AuthDNS of dns64bench, which counts queries.
        #[default]
        Dns64bench => dns64bench::DRIVER,
        /// NLnet Labs NSD.
        Nsd => nsd::DRIVER,
        /// CZ.NIC Knot DNS.
        Knot => knot::DRIVER,
        /// ISC BIND 9.
        Bind => bind::AUTHORITATIVE,
        /// EURid YADIFA.
        Yadifa => yadifa::DRIVER,
    }
}

impl Auth {
    /// True for the AuthDNS of dns64bench, which serves all names without a zone file and counts queries.
    pub fn is_ours(self) -> bool {
        self == Auth::Dns64bench
    }
}

/// Finds a program: at the given path, in the folder of this program, on the `PATH`, or in
/// `/usr/sbin` and `/sbin`.
pub fn find(program: impl AsRef<Path>) -> Option<PathBuf> {
    let program = program.as_ref();
    if program.components().count() > 1 {
        return program.is_file().then(|| program.into());
    }
    let ours = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = ours
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The Well-Known Prefix (RFC 6052 §2.1).
const WELL_KNOWN: &str = "64:ff9b::/96";
/// One prefix of each length in RFC 6052 §2.2, from the documentation range of RFC 9637. The older documentation range
/// 2001:db8::/32 is not used, because it contains the addresses of names in the checks.
const OWN_PREFIXES: [&str; 6] = [
    "3fff:64::/32",
    "3fff:64:6400::/40",
    "3fff:64:64::/48",
    "3fff:64:64:6400::/56",
    "3fff:64:64:64::/64",
    "3fff:64:64:64:0:64::/96",
];
/// The two prefixes that are configured together for the conformance checks that need several prefixes.
const SEVERAL: [&str; 2] = ["3fff:64:64:64:0:64::/96", "3fff:65:65::/48"];

impl Dut {
    /// Returns the configurations that the driver supports for conformance checks, for a plan with
    /// the prefix `usual`. The usual configuration comes first.
    pub fn variants(self, usual: Prefix) -> Vec<Variant> {
        let prefix = |text: &str| text.parse::<Prefix>().ok();
        let is_well_known = prefix(WELL_KNOWN) == Some(usual);
        let other = (!is_well_known).then(|| prefix(WELL_KNOWN)).flatten();
        let own = OWN_PREFIXES.into_iter().filter_map(prefix).filter(|own| {
            let is_new = is_well_known || own.length() != usual.length();
            is_new && self.prefix_lengths().contains(&own.length())
        });
        let mut all = vec![Variant::Usual];
        if self != Dut::Custom {
            all.extend(other.into_iter().chain(own).map(|own| Variant::Prefixes(vec![own])));
        }
        if self.supports_several_prefixes() {
            all.push(Variant::Prefixes(SEVERAL.into_iter().filter_map(prefix).collect()));
        }
        if self.validates() == Some(true) {
            all.push(Variant::NoValidation);
        }
        if self.excludes() {
            all.push(Variant::Excluding);
        }
        all
    }

    /// Returns the prefix lengths that the server supports according to its manual.
    fn prefix_lengths(self) -> &'static [u8] {
        match self {
            Dut::Bind | Dut::Unbound | Dut::Coredns | Dut::Dns64d => &[32, 40, 48, 56, 64, 96],
            Dut::Powerdns | Dut::KnotResolver | Dut::Mtd64Ng => &[96],
            Dut::Custom => &[],
        }
    }

    /// True if the server can synthesize records with several prefixes for the same client.
    fn supports_several_prefixes(self) -> bool {
        matches!(self, Dut::Bind | Dut::Dns64d)
    }

    /// True if further excluded addresses (RFC 6147 §5.1.4) can be configured on the server.
    fn excludes(self) -> bool {
        matches!(self, Dut::Bind | Dut::KnotResolver | Dut::Dns64d)
    }
}

#[cfg(test)]
mod tests;
