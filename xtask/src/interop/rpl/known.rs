//! Scenarios that do not apply to dns64d, and scenarios in which dns64d rightly differs from Unbound.

/// Scenarios that are not run, each with the reason.
const INAPPLICABLE: &[(&str, &str)] = &[
    ("val_adcopy", "no trust anchor: an upstream sets the AD bit"),
    ("val_any_cap", "Unbound limits the number of RRsets in responses to ANY"),
    ("val_ds_gost", "dns64d does not support GOST (algorithm 12, digest type 3)"),
    ("val_ds_gost_downgrade", "dns64d does not support GOST (algorithm 12, digest type 3)"),
    ("val_faildnskey_ok", "dns64d has no setting like harden-dnssec-stripped: no"),
    ("val_global_quota", "limit of Unbound on the number of upstream queries"),
    ("val_keyprefetch_verify", "dns64d does not prefetch keys"),
    ("val_negcache_nodata", "dns64d does not use NSEC records for other names (aggressive-nsec)"),
    ("val_negcache_nxdomain", "dns64d does not use NSEC records for other names (aggressive-nsec)"),
    ("val_negcache_ttl", "dns64d does not use NSEC records for other names (aggressive-nsec)"),
    (
        "val_negcache_ttl_prefetch",
        "dns64d does not use NSEC records for other names (aggressive-nsec)",
    ),
    (
        "val_nsec3_b1_nameerror",
        "no responses to the DS queries that dns64d sends after a denial with Opt-Out",
    ),
    ("val_unalgo_anchor", "dns64d refuses trust anchors with unsupported algorithms"),
];

/// A scenario in which dns64d rightly differs from Unbound. The steps before the difference must agree. The versions of
/// a scenario can differ, so it may also pass.
pub(super) struct Difference {
    pub(super) name: &'static str,
    /// Text of the difference.
    pub(super) text: &'static str,
    pub(super) reason: &'static str,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "val_anchor_nx_nosig",
        text: "expected NXDOMAIN without AD, received SERVFAIL without AD",
        reason: "a denial of the zone above a trust anchor, which has no trust anchor, proves nothing (RFC 4035 §5)",
    },
    Difference {
        name: "val_cnameother",
        text: "expected NOERROR with AD, received SERVFAIL without AD",
        reason: "a name with an alias must have no other data (RFC 2181 §10.1)",
    },
    Difference {
        name: "val_cnameqtype",
        text: "expected NXDOMAIN with AD, received SERVFAIL without AD",
        reason: "aliases are not followed for CNAME queries (RFC 1034 §3.6.2), so the RCODE contradicts the answer",
    },
    Difference {
        name: "val_cnameqtype_qmin",
        text: "expected NXDOMAIN with AD, received SERVFAIL without AD",
        reason: "aliases are not followed for CNAME queries (RFC 1034 §3.6.2), so the RCODE contradicts the answer",
    },
    Difference {
        name: "val_dnameqtype",
        text: "expected NXDOMAIN with AD, received SERVFAIL without AD",
        reason: "Unbound takes the alias and the denial from its cache, and no server has them",
    },
    Difference {
        name: "val_dnameqtype_qmin",
        text: "expected NXDOMAIN with AD, received SERVFAIL without AD",
        reason: "Unbound takes the alias and the denial from its cache, and no server has them",
    },
    Difference {
        name: "val_dnametoolong",
        text: "expected YXDOMAIN without AD, received YXDOMAIN with AD",
        reason: "the DNAME record is secure, and proves that the target is too long (RFC 4035 §3.2.3)",
    },
    Difference {
        name: "val_ds_sha2_lenient",
        text: "expected NOERROR with AD, received SERVFAIL without AD",
        reason: "DS records with SHA-1 are ignored if there is one with SHA-256 (RFC 4509 §3)",
    },
    Difference {
        name: "val_nodata_entnx",
        text: "expected NOERROR with AD, received SERVFAIL without AD",
        reason: "the RCODE contradicts the proof (RFC 4035 §5.4); Unbound changes the RCODE",
    },
    Difference {
        name: "val_nx_nsec3_collision",
        text: "expected NXDOMAIN without AD, received SERVFAIL without AD",
        reason: "all NSEC3 records of a proof have the same parameters (RFC 5155 §8.2); so do newer versions of Unbound",
    },
    Difference {
        name: "val_nx_nsec3_params",
        text: "expected NXDOMAIN without AD, received SERVFAIL without AD",
        reason: "all NSEC3 records of a proof have the same parameters (RFC 5155 §8.2); so do newer versions of Unbound",
    },
    Difference {
        name: "val_ta_algo_missing",
        text: "expected SERVFAIL without AD, received NOERROR with AD",
        reason: "a zone need not be signed with all algorithms of its keys (RFC 6840 §5.11)",
    },
];

/// Returns the reason why a scenario does not apply, or `None` if it is run.
pub(super) fn inapplicable(name: &str) -> Option<&'static str> {
    INAPPLICABLE.iter().find(|(scenario, _)| *scenario == name).map(|(_, reason)| *reason)
}

/// Returns the difference that a scenario must have, or `None` if it must pass.
pub(super) fn difference(name: &str) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|difference| difference.name == name)
}
