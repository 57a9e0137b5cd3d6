//! Export of the served zone as a zone file for NSD, BIND, Knot DNS or YADIFA.

use std::io::{self, Write};

use wire::name::{LABEL_LEN, NameRange, has_aaaa, native_aaaa, write_label};

use super::answer::{Zone, soa_numbers};

/// Writes the records of `zone` for the names of `range`, one per line.
///
/// # Errors
/// Returns any error from the writer.
pub fn write(zone: &Zone, range: NameRange, out: &mut impl Write) -> io::Result<()> {
    let [serial, refresh, retry, expire, minimum] = soa_numbers(zone.ttl());
    writeln!(out, "$ORIGIN {}.\n$TTL {}", zone.domain(), zone.ttl())?;
    writeln!(out, "@ IN SOA ns hostmaster {serial} {refresh} {retry} {expire} {minimum}")?;
    writeln!(out, "@ IN NS ns\nns IN A {}", zone.ns_address())?;
    let mut label = [0; LABEL_LEN];
    for n in 0..range.count() {
        let address = range.address(n);
        write_label(address, &mut label);
        out.write_all(&label)?;
        writeln!(out, " IN A {address}")?;
        if has_aaaa(address, zone.aaaa_share()) {
            out.write_all(&label)?;
            writeln!(out, " IN AAAA {}", native_aaaa(address))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;
    use units::Share;
    use wire::name::Domain;

    #[test]
    fn a_zone_of_a_range() {
        let ns = Ipv4Addr::new(198, 18, 0, 2);
        let zone = Zone::new(Domain::dns64perf(), Share::percent(50), Duration::from_secs(60), ns);
        let mut text = Vec::new();
        write(&zone, "10.0.0.0/30".parse().unwrap(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.starts_with("$ORIGIN dns64perf.test.\n$TTL 60\n@ IN SOA ns hostmaster 1 "),
            "{text}"
        );
        assert_eq!(text.matches(" IN A 10.0.0.").count(), 4);
        let aaaa = (0..4)
            .filter(|n| has_aaaa(Ipv4Addr::from(0x0a00_0000 + n), Share::percent(50)))
            .count();
        assert_eq!(text.matches(" IN AAAA ").count(), aaaa);
    }
}
