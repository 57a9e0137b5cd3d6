//! Records and status of an answer that needs no upstream.

use units::Nanos;
use wire::rcode::Rcode;

/// One resource record of a local answer.
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
    /// Records in the answer. Their owner is the name in the question.
    pub records: Vec<LocalRecord>,
    /// Owner name of the SOA record in a negative answer, in lower case.
    pub zone: Option<Vec<u8>>,
    /// Name server in the SOA record of a negative answer.
    pub name_server: NameServer,
    /// Extended error (RFC 8914) if the answer is a failure.
    pub extended_error: Option<u16>,
    /// Expiry time of the prefix on which the answer depends. `None` if the prefix never expires or
    /// if the answer depends on no prefix.
    pub until: Option<Nanos>,
}

/// Name server of a local zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameServer {
    /// The configured name server (key `name-server` in `[local]`).
    Configured,
    /// The apex of the zone, which has no addresses (RFC 6303 §3).
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

    /// Returns the limit on the TTL of all records, including the SOA record, in seconds. The limit is the remaining
    /// lifetime of the prefix at the time `now`.
    pub(crate) fn lifetime(&self, now: Nanos) -> u32 {
        seconds_left(self.until, now)
    }
}

/// Returns the time from `now` to the expiry time `until`, in whole seconds. If there is no expiry time, returns
/// `u32::MAX`.
pub(super) fn seconds_left(until: Option<Nanos>, now: Nanos) -> u32 {
    until.map_or(u32::MAX, |until| {
        u32::try_from(until.since(now).0 / Nanos::SECOND.0).unwrap_or(u32::MAX)
    })
}
