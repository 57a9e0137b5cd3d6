//! Conversion of mtd64-ng.conf, which has one key and its value per line. Comments begin with `//`,
//! or with `#` at the start of a line.
//!
//! mtd64-ng synthesizes for all clients, whenever the answer to an AAAA query has no AAAA records.

use std::net::Ipv6Addr;
use std::path::Path;

use ipnet::{IpNet, Ipv6Net};
use net::address::ServiceAddr;

use super::addresses::{Addresses, network};
use super::draft::{Draft, Located, Origin, PrefixDraft, Translation};
use super::error::ImportError;
use super::files::{called, read};
use super::notes::Location;
use super::prefix;
use super::values::socket;

/// Keys of mtd64-ng that do not affect answers.
const IDLE: &[&str] =
    &["debugging", "resend-attempts", "response-maxlength", "selection-mode", "timeout-time"];

/// Converts an mtd64-ng.conf. The result is added to `draft`.
pub(super) fn import(file: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let name = called(file);
    let mut port = 53;
    for (number, line) in read(file)?.lines().enumerate() {
        let location = Location::new(&name, number + 1);
        let line = line.split("//").next().unwrap_or_default().trim();
        if line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(key), value) = (words.next(), words.next().unwrap_or_default()) else { continue };
        let origin = Origin::new(&location, line);
        let mut lost = |why: &str| draft.notes.answers(&location, line, why);
        match key {
            "nameserver" if value == "defaults" => {
                draft.notes.nothing(
                    &location,
                    line,
                    "without [[upstream]] the servers of /etc/resolv.conf are used",
                );
            }
            "nameserver" => match socket(value, 53) {
                Some(address) => draft.upstreams.push(Located { value: address, origin }),
                None => lost("not an address"),
            },
            "dns64-prefix" => match prefix_of(value) {
                Some(prefix) => {
                    draft.translation = Translation {
                        prefixes: vec![PrefixDraft { prefix, suffix: None, ranges: None, origin }],
                        exclude: Some(Addresses::default()),
                        mode: Some("strict"),
                        flags: vec![("break-dnssec", true)],
                    };
                }
                None => lost(prefix::rejection(value)),
            },
            "port" => port = value.parse().unwrap_or(port),
            "num-threads" => draft.set_threads(value, origin),
            key if IDLE.contains(&key) => {
                draft.notes.nothing(&location, line, "dns64d does not need it");
            }
            _ => lost("dns64d has no equivalent"),
        }
    }
    // mtd64-ng listens on `[::]`, which also accepts IPv4.
    let location = Location::new(&name, 1);
    for ip in
        [std::net::IpAddr::from(Ipv6Addr::UNSPECIFIED), std::net::Ipv4Addr::UNSPECIFIED.into()]
    {
        draft.listen_at(ServiceAddr::new(ip, port), Origin::new(&location, "all addresses"));
    }
    draft.dnssec.set_validate(false, Origin::new(&location, "mtd64-ng does not validate"));
    let origin = Origin::new(&location, "all clients");
    draft.access = Some(Located { value: Addresses::all(), origin });
    Ok(())
}

/// Parses a prefix. Bits beyond the length are cleared, because mtd64-ng ignores them.
fn prefix_of(text: &str) -> Option<Ipv6Net> {
    let IpNet::V6(network) = network(text)? else { return None };
    prefix::checked(network)
}
