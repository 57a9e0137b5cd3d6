//! RFC 6147 §5.1.5: aliases are followed to their end, and are part of the answer.

use domain::base::iana::Rtype;

use super::common::{NATIVE, NATIVE_LABEL, RFC6147, behaviour, belong_to, end, synthesized, way};
use crate::check::Check;
use crate::label::Alias;
use crate::message::{Message, Name, Record, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect};

const FOLLOWED: &str = "If the response contains a CNAME or a DNAME, then the CNAME or DNAME \
     chain is followed until the first terminating A or AAAA record is reached.";
const MAY_ASK: &str = "This may require the DNS64 to ask for an A record, in case the response \
     to the original AAAA query is a CNAME or DNAME without a AAAA record to follow.";
const TREATED: &str = "The resulting AAAA or A record is treated like any other AAAA or A case, \
     as appropriate.";
const INCLUDED: &str = "When assembling the answer section, any chains of CNAME or DNAME RRs are \
     included as part of the answer along with the synthetic AAAA (if appropriate).";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc6147-5.1.5-alias",
        title: "AAAA records are synthesized from the A record at the end of an alias",
        section: "5.1.5",
        sentence: FOLLOWED,
        script: |t| synthesized(t, "cname.v4-1-2-3-4", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-alias-shown",
        title: "The answer has the CNAME record once, together with the synthesized records",
        section: "5.1.5",
        sentence: INCLUDED,
        script: |t| followed(t, "cname.v4-1-2-3-4"),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-two-aliases",
        title: "Two aliases are followed and returned",
        section: "5.1.5",
        sentence: FOLLOWED,
        script: |t| followed(t, "cname.cname.v4-1-2-3-4"),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-long-chain",
        title: "Eight aliases are followed and returned",
        section: "5.1.5",
        sentence: FOLLOWED,
        script: |t| followed(t, "cname.cname.cname.cname.cname.cname.cname.cname.v4-1-2-3-4"),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-half-followed",
        title: "Aliases that the upstream did not follow are followed by the server",
        section: "5.1.5",
        sentence: MAY_ASK,
        script: half_followed,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-other-zone",
        title: "An alias into another zone is followed and returned",
        section: "5.1.5",
        sentence: FOLLOWED,
        script: |t| followed(t, "hop.v4-1-2-3-4"),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-real-wins",
        title: "An AAAA record at the end of aliases has priority over the A record, and the \
            aliases are returned",
        section: "5.1.5",
        sentence: TREATED,
        script: real_record_at_the_end,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-alias-to-nxdomain",
        title: "NXDOMAIN is returned for an alias of a nonexistent name",
        section: "5.1.5",
        sentence: TREATED,
        script: alias_to_no_name,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-alias-to-nodata",
        title: "An alias of a name without addresses has no addresses, and is no error",
        section: "5.1.5",
        sentence: TREATED,
        script: alias_to_no_data,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-dname",
        title: "AAAA records are synthesized from the A record at the end of a DNAME",
        section: "5.1.5",
        sentence: FOLLOWED,
        script: dname_is_followed,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-dname-shown",
        title: "The answer with synthesized records contains the DNAME record once",
        section: "5.1.5",
        sentence: INCLUDED,
        script: dname_is_shown,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-letter-case",
        title: "Names of an alias's records are equal in any letter case",
        section: "5.1.5",
        sentence: FOLLOWED,
        script: letter_case_does_not_matter,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.5-alias-ttls",
        title: "No CNAME record of a chain lives longer than its TTL",
        section: "5.1.5",
        sentence: INCLUDED,
        script: aliases_keep_their_ttls,
        ..RFC6147
    },
    Check {
        id: "rfc1034-3.6.2-alias-loop",
        title: "An alias of itself is reported as an error before a stub resolver gives up",
        rfc: 1034,
        section: "3.6.2",
        sentence: "CNAME chains should be followed and CNAME loops signalled as an error.",
        script: loops_are_errors,
        ..RFC6147
    },
];

/// Queries the AAAA records of a new name, whose alias chain ends at a name with the address 1.2.3.4. Requires the
/// correct addresses in AAAA records of the last name, and a CNAME record for each step of the chain.
fn followed(t: &mut Trial<'_>, labels: &str) -> Judged {
    let (name, reply) = synthesized(t, labels, &["1.2.3.4"])?;
    has_aliases(&reply, &way(t, &name))
}

/// Requires one CNAME record for each step of the chain, and the AAAA records at its end.
fn has_aliases(reply: &Message, way: &[Name]) -> Judged {
    for step in way.windows(2) {
        let (owner, target) = (&step[0], &step[1]);
        let fits = |record: &&Record| {
            record.owner == *owner && record.target().is_some_and(|found| found == *target)
        };
        let found = reply.answers(Rtype::CNAME).filter(fits).count();
        expect(found == 1, || {
            format!("the answer has {found} times, not once: {owner} CNAME {target}")
        })?;
    }
    way.last().map_or(Ok(()), |end| belong_to(reply, Rtype::AAAA, end))
}

fn half_followed(t: &mut Trial<'_>) -> Judged {
    followed(t, "half.cname.v4-1-2-3-4")?;
    followed(t, "half.cname.half.cname.v4-1-2-3-4")
}

fn real_record_at_the_end(t: &mut Trial<'_>) -> Judged {
    for alias in ["cname", "cname.cname", "half.cname"] {
        let (name, reply) = t.aaaa(&format!("{alias}.{NATIVE_LABEL}.v4-1-2-3-4"))?;
        reply.has_aaaa(&[NATIVE])?;
        has_aliases(&reply, &way(t, &name))?;
    }
    Ok(())
}

fn alias_to_no_name(t: &mut Trial<'_>) -> Judged {
    for labels in ["cname.all-rcode-3", "half.cname.all-rcode-3"] {
        let (_, reply) = t.aaaa(labels)?;
        reply.has_rcode(rcode::NXDOMAIN)?;
    }
    Ok(())
}

fn alias_to_no_data(t: &mut Trial<'_>) -> Judged {
    for labels in ["cname.txt", "half.cname.txt"] {
        let (_, reply) = t.aaaa(labels)?;
        reply.has_nodata(Rtype::AAAA)?;
    }
    Ok(())
}

fn dname_is_followed(t: &mut Trial<'_>) -> Judged {
    let (name, reply) = synthesized(t, "dname.v4-1-2-3-4", &["1.2.3.4"])?;
    belong_to(&reply, Rtype::AAAA, &end(t, &name))
}

fn dname_is_shown(t: &mut Trial<'_>) -> Judged {
    let (name, reply) = synthesized(t, "dname.v4-1-2-3-4", &["1.2.3.4"])?;
    let Some(Alias::Dname { owner, replacement, .. }) = behaviour(t, &name).alias else {
        return Err(Fault::NotTried(format!("{name} is not below a DNAME")));
    };
    let fits = |record: &&Record| {
        record.owner == owner && record.target().is_some_and(|target| target == replacement)
    };
    let found = reply.answers(Rtype::DNAME).filter(fits).count();
    expect(found == 1, || {
        format!("the answer has {found} times, not once: {owner} DNAME {replacement}")
    })
}

fn letter_case_does_not_matter(t: &mut Trial<'_>) -> Judged {
    for labels in ["case.cname.case.v4-1-2-3-4", "case.v4-1-2-3-4"] {
        let (name, reply) = synthesized(t, labels, &["1.2.3.4"])?;
        has_aliases(&reply, &way(t, &name))?;
    }
    Ok(())
}

fn aliases_keep_their_ttls(t: &mut Trial<'_>) -> Judged {
    let (name, reply) = t.aaaa("cname-40.cname-70.v4-1-2-3-4.ttl-90.soa-90-90")?;
    for (owner, own) in way(t, &name).iter().zip([40, 70]) {
        let alias = reply.answers(Rtype::CNAME).find(|record| record.owner == *owner);
        let ttl = alias.map(|record| record.ttl);
        let ttl = ttl.ok_or_else(|| Fault::Wrong(format!("there is no CNAME of {owner}")))?;
        // A cache may reduce all TTLs to the shortest one.
        expect(ttl <= own, || format!("the TTL of the CNAME of {owner} is {ttl} s, not {own} s"))?;
    }
    Ok(())
}

fn loops_are_errors(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("loop")?;
    expect(reply.rcode != rcode::NOERROR, || "the RCODE is NOERROR".into())
}
