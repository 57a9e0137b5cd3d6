//! Records and status of an answer that needs no upstream.

use units::Nanos;
use wire::rcode::Rcode;

/// A record of a local answer; its data is uncompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalRecord {
    /// Record type; the class is IN.
    pub rtype: u16,
    /// TTL in seconds.
    pub ttl: u32,
    /// Record data in wire format, uncompressed.
    pub data: Vec<u8>,
}

/// An answer that needs no upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalAnswer {
    /// RCODE of the reply: NOERROR, NXDOMAIN or SERVFAIL.
    pub rcode: Rcode,
    /// Records owned by the question's name.
    pub records: Vec<LocalRecord>,
    /// Owner of the SOA of a negative answer, lower case.
    pub zone: Option<Vec<u8>>,
    /// Name server in this SOA.
    pub name_server: NameServer,
    /// Extended error (RFC 8914), for a failure.
    pub extended_error: Option<u16>,
    /// Expiry of the prefix that the answer depends on, or `None` if it never expires or no prefix
    /// is involved.
    pub until: Option<Nanos>,
}

/// Name server of a local zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameServer {
    /// `name-server` of `[local]`.
    Configured,
    /// The apex of the zone, a name without addresses (RFC 6303 §3).
    Apex,
}

impl LocalAnswer {
    pub(super) fn negative(rcode: Rcode, zone: &[u8]) -> LocalAnswer {
        let none = LocalAnswer::positive_or_nodata(Vec::new(), zone);
        LocalAnswer { rcode, ..none }
    }

    pub(super) fn positive_or_nodata(records: Vec<LocalRecord>, zone: &[u8]) -> LocalAnswer {
        LocalAnswer {
            rcode: Rcode::NOERROR,
            zone: records.is_empty().then(|| zone.to_vec()),
            records,
            name_server: NameServer::Configured,
            extended_error: None,
            until: None,
        }
    }

    pub(super) fn known_until(self, until: Option<Nanos>) -> LocalAnswer {
        LocalAnswer { until, ..self }
    }

    /// Returns the maximum TTL of its records at a moment, including the SOA, in seconds.
    pub(crate) fn lifetime(&self, now: Nanos) -> u32 {
        seconds_left(self.until, now)
    }
}

/// Returns the whole seconds from `now` until then; `u32::MAX` for `None`.
pub(super) fn seconds_left(until: Option<Nanos>, now: Nanos) -> u32 {
    until.map_or(u32::MAX, |until| {
        u32::try_from(until.since(now).0 / Nanos::SECOND.0).unwrap_or(u32::MAX)
    })
}
