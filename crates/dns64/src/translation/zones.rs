//! What the zones that are made up here say of themselves (RFC 6303 §3).

use crate::name::LowerName;

/// Name server, contact and TTLs of the zones that are made up here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalZones {
    /// The name server of their NS and SOA records.
    pub name_server: LowerName,
    /// The mailbox of their SOA records, its `@` a dot.
    pub contact: LowerName,
    /// TTL of their SOA and NS records, and of what does not exist, seconds.
    pub ttl: u32,
    /// TTL of the CNAME records of their pointers, seconds.
    pub alias_ttl: u32,
    /// The largest TTL of all that is answered without an upstream, seconds.
    pub max_ttl: u32,
}

impl Default for LocalZones {
    fn default() -> LocalZones {
        LocalZones {
            name_server: LowerName::of_wire(b"\x09localhost\0"),
            contact: LowerName::of_wire(b"\x06nobody\x07invalid\0"),
            ttl: 600,
            alias_ttl: 600,
            max_ttl: 86_400,
        }
    }
}

impl LocalZones {
    /// Data of their SOA records, uncompressed (RFC 1035 §3.3.13).
    pub(crate) fn soa(&self) -> Vec<u8> {
        let mut data = [self.name_server.wire(), self.contact.wire()].concat();
        for number in [1, 3_600, 1_200, 604_800, self.ttl] {
            data.extend(u32::to_be_bytes(number));
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6303 §3: `@ 10800 IN SOA @ nobody.invalid. 1 3600 1200 604800 10800`, with names and TTL
    /// of ours.
    #[test]
    fn the_start_of_authority_is_that_of_rfc_6303() {
        let mut data = b"\x09localhost\0\x06nobody\x07invalid\0".to_vec();
        data.extend([0, 0, 0, 1, 0, 0, 0x0e, 0x10, 0, 0, 0x04, 0xb0]);
        data.extend([0, 0x09, 0x3a, 0x80, 0, 0, 0x02, 0x58]);
        assert_eq!(LocalZones::default().soa(), data);
    }
}
