//! SOA and NS records of local zones (RFC 6303 §3).

use wire::view::rtype;

use super::local_answer::LocalRecord;
use crate::name::LowerName;

/// Name server, contact and TTLs of local zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalZones {
    /// Name server in NS and SOA records of the reverse zones of prefixes.
    pub name_server: LowerName,
    /// Mailbox in SOA records, with a dot in place of `@`.
    pub contact: LowerName,
    /// TTL of SOA and NS records, and of negative answers, in seconds.
    pub ttl: u32,
    /// TTL of the CNAME records in the reverse zones of prefixes, in seconds.
    pub alias_ttl: u32,
    /// Maximum TTL of all local answers, in seconds.
    pub max_ttl: u32,
    /// Data of the SVCB records of `_dns.resolver.arpa`, which describe the encrypted transports (RFC 9462 §4).
    pub resolvers: Vec<Vec<u8>>,
}

impl Default for LocalZones {
    fn default() -> LocalZones {
        LocalZones {
            name_server: LowerName::from_wire(b"\x09localhost\0"),
            contact: LowerName::from_wire(b"\x06nobody\x07invalid\0"),
            ttl: 600,
            alias_ttl: 600,
            max_ttl: 86_400,
            resolvers: Vec::new(),
        }
    }
}

impl LocalZones {
    /// Returns the SOA or the NS record at the apex of a local zone, depending on `qtype`. For ANY, both records are
    /// returned. For all other types, the result is empty. `name_server` is in wire format. These records mark the zone
    /// cut for clients that search for it (RFC 1034 §4.2.1).
    pub(super) fn apex_records(&self, qtype: u16, name_server: &[u8]) -> Vec<LocalRecord> {
        let record = |rtype, data| LocalRecord { rtype, ttl: self.ttl, data };
        let soa = || record(rtype::SOA, self.soa(name_server));
        let ns = || record(rtype::NS, name_server.to_vec());
        match qtype {
            rtype::SOA => vec![soa()],
            rtype::NS => vec![ns()],
            rtype::ANY => vec![soa(), ns()],
            _ => Vec::new(),
        }
    }

    /// Returns the data of a zone's SOA record with the given name server, uncompressed (RFC 1035 §3.3.13).
    pub(crate) fn soa(&self, name_server: &[u8]) -> Vec<u8> {
        let mut data = [name_server, self.contact.wire()].concat();
        for number in [1, 3_600, 1_200, 604_800, self.ttl] {
            data.extend(u32::to_be_bytes(number));
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6303 §3: `@ 10800 IN SOA @ nobody.invalid. 1 3600 1200 604800 10800`, with a different
    /// TTL.
    #[test]
    fn the_start_of_authority_is_that_of_rfc_6303() {
        let mut data = b"\x09localhost\0\x06nobody\x07invalid\0".to_vec();
        data.extend([0, 0, 0, 1, 0, 0, 0x0e, 0x10, 0, 0, 0x04, 0xb0]);
        data.extend([0, 0x09, 0x3a, 0x80, 0, 0, 0x02, 0x58]);
        let zones = LocalZones::default();
        assert_eq!(zones.soa(zones.name_server.wire()), data);
    }
}
