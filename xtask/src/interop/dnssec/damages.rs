//! The damages of the signed zones, and those of replies.

use anyhow::Result;
use wire::view::rtype::{A, AAAA, CNAME, DS};

use super::proxy::{Edit, Record, Reply, Upstream, wire_name};
use super::zones::{Denial, Plan, Validity, Zones};

/// Zones with the same keys that are signed in other ways. Damages take records from them.
pub(super) struct Spares {
    pub(super) past: Zones,
    pub(super) future: Zones,
    /// Zones without the records of `www.signed.test`.
    pub(super) without_www: Zones,
}

/// A damage.
pub(super) struct Damage {
    pub(super) name: &'static str,
    pub(super) change: Change,
    /// True if the damage is planted only in zones with NSEC3 records.
    pub(super) is_of_nsec3: bool,
}

/// Changes that make up a damage. Names of owners are relative to `signed.test`.
pub(super) enum Change {
    /// The signed zones.
    Zones(fn(&mut Zones, &Spares)),
    /// The zones before they are signed.
    Plan(fn(&mut Plan)),
    /// The replies of the authoritative server.
    Replies(Edit),
}

const fn zones(name: &'static str, change: fn(&mut Zones, &Spares)) -> Damage {
    Damage { name, change: Change::Zones(change), is_of_nsec3: false }
}

const fn plan(name: &'static str, change: fn(&mut Plan)) -> Damage {
    Damage { name, change: Change::Plan(change), is_of_nsec3: false }
}

const fn replies(name: &'static str, change: Edit) -> Damage {
    Damage { name, change: Change::Replies(change), is_of_nsec3: false }
}

impl Damage {
    const fn of_nsec3(mut self) -> Damage {
        self.is_of_nsec3 = true;
        self
    }
}

/// RCODEs.
const NOERROR: u8 = 0;
const NXDOMAIN: u8 = 3;

/// Returns the damages of zones with these denials.
pub(super) fn damages(denial: Denial) -> Vec<&'static Damage> {
    let all = [DATA, SIGNATURES, DENIALS, DELEGATIONS, REPLIES].into_iter().flatten();
    all.filter(|damage| denial != Denial::Nsec || !damage.is_of_nsec3).collect()
}

const DATA: &[Damage] = &[
    zones("nothing", |_, _| {}),
    zones("www with another address", |zones, _| {
        edit(&mut zones.parent, "www.", "A", "192.0.2.1", "192.0.2.9");
    }),
    zones("www with one more address", |zones, _| {
        zones.parent.push("www.signed.test. 300 IN A 192.0.2.77".into());
    }),
    zones("SOA with another serial", |zones, _| {
        edit(&mut zones.parent, "", "SOA", " 604800 ", " 604801 ");
    }),
    zones("alias with another target", |zones, _| {
        edit(&mut zones.parent, "alias.", "CNAME", "www.", "both.");
    }),
    zones("upper-case names", |zones, _| {
        for line in zones.parent.iter_mut().filter(|line| line.starts_with("www.")) {
            *line = line.replacen("www.", "WwW.", 1);
        }
    }),
    zones("TTL above the original one", |zones, _| {
        for line in zones.parent.iter_mut().filter(|line| line.starts_with("www.")) {
            *line = line.replacen("300", "900", 1);
        }
    }),
    zones("child's www with another address", |zones, _| {
        edit(&mut zones.child, "www.child.", "A", "192.0.2.5", "192.0.2.6");
    }),
];

const SIGNATURES: &[Damage] = &[
    zones("www without signature", |zones, _| unsign(&mut zones.parent, "www.", "A")),
    zones("SOA without signature", |zones, _| unsign(&mut zones.parent, "", "SOA")),
    zones("wildcard without signature", |zones, _| unsign(&mut zones.parent, "*.w.", "A")),
    zones("alias without signature", |zones, _| unsign(&mut zones.parent, "alias.", "CNAME")),
    zones("DNAME without signature", |zones, _| unsign(&mut zones.parent, "dname.", "DNAME")),
    zones("child's www without signature", |zones, _| unsign(&mut zones.child, "www.child.", "A")),
    zones("signature with a smaller label count", |zones, _| {
        edit_signature(&mut zones.parent, |fields| fields[2] = "2".into());
    }),
    zones("signature with a larger label count", |zones, _| {
        edit_signature(&mut zones.parent, |fields| fields[2] = "4".into());
    }),
    zones("signature with the name of another signer", |zones, _| {
        edit_signature(&mut zones.parent, |fields| fields[7] = "child.signed.test.".into());
    }),
    zones("signature with the name of a signer without a zone", |zones, _| {
        edit_signature(&mut zones.parent, |fields| fields[7] = "www.signed.test.".into());
    }),
    zones("signature with another key tag", |zones, _| {
        edit_signature(&mut zones.parent, |fields| {
            fields[6] = if fields[6] == "1" { "2" } else { "1" }.into();
        });
    }),
    zones("signature with another algorithm", |zones, _| {
        edit_signature(&mut zones.parent, |fields| fields[1] = "8".into());
    }),
    zones("signature with an unknown algorithm", |zones, _| {
        edit_signature(&mut zones.parent, |fields| fields[1] = "200".into());
    }),
    zones("an expired signature", |zones, spares| {
        unsign(&mut zones.parent, "www.", "A");
        zones.parent.extend(signatures(&spares.past.parent, "www.", "A"));
    }),
    zones("a signature that is not valid yet", |zones, spares| {
        unsign(&mut zones.parent, "www.", "A");
        zones.parent.extend(signatures(&spares.future.parent, "www.", "A"));
    }),
    zones("an expired and a valid signature", |zones, spares| {
        zones.parent.extend(signatures(&spares.past.parent, "www.", "A"));
    }),
    zones("a wrong and a valid signature", |zones, _| {
        let mut wrong = signatures(&zones.parent, "www.", "A");
        edit_signature(&mut wrong, |fields| {
            let first = if fields[8].starts_with('A') { "B" } else { "A" };
            fields[8].replace_range(..1, first);
        });
        zones.parent.extend(wrong);
    }),
    plan("all signatures expired", |plan| plan.parent_validity = Validity::Past),
    plan("child with expired signatures", |plan| plan.child_validity = Validity::Past),
    plan("child with signatures that are not valid yet", |plan| {
        plan.child_validity = Validity::Future;
    }),
];

const DENIALS: &[Damage] = &[
    zones("denials without signatures", |zones, _| {
        zones
            .parent
            .retain(|line| !(is(line, "RRSIG") && (covers(line, "NSEC") || covers(line, "NSEC3"))));
    }),
    zones("denials with wrong types", |zones, _| {
        for line in zones.parent.iter_mut().filter(|line| is_denial(line)) {
            *line = line.replacen(" RRSIG", " TXT RRSIG", 1);
        }
    }),
    zones("no denials", |zones, _| {
        zones.parent.retain(|line| !is_denial(line) && !is(line, "NSEC3PARAM"));
        zones.parent.retain(|line| !(is(line, "RRSIG") && covers(line, "NSEC")));
    }),
    zones("denials with another next name", |zones, _| {
        for line in zones.parent.iter_mut().filter(|line| is_denial(line)) {
            let at = if is(line, "NSEC") { 4 } else { 8 };
            edit_word(line, at, |next| {
                let first = if next.starts_with('0') { "1" } else { "0" };
                first.to_owned() + &next[1..]
            });
        }
    }),
    zones("denials with swapped owners", |zones, _| {
        let denials: Vec<usize> =
            (0..zones.parent.len()).filter(|at| is_denial(&zones.parent[*at])).collect();
        let owners: Vec<String> =
            denials.iter().map(|at| owner(&zones.parent[*at]).to_owned()).collect();
        for line in &mut zones.parent {
            let is_signature = is(line, "RRSIG") && (covers(line, "NSEC") || covers(line, "NSEC3"));
            if !is_denial(line) && !is_signature {
                continue;
            }
            let Some(at) = owners.iter().position(|one| one == owner(line)) else { continue };
            // Pairs of neighbours; the last of an odd number remains.
            let other = owners.get(at ^ 1).unwrap_or(&owners[at]).clone();
            edit_word(line, 0, |_| other);
        }
    }),
    zones("denial of the apex missing", |zones, _| {
        let apex = zones.parent.iter().find(|line| is_denial(line) && line.contains(" SOA "));
        let apex = apex.map(|line| owner(line).to_owned()).unwrap_or_default();
        let is_of_apex = |line: &str| {
            owner(line) == apex
                && (is_denial(line)
                    || is(line, "RRSIG") && (covers(line, "NSEC") || covers(line, "NSEC3")))
        };
        zones.parent.retain(|line| !is_of_apex(line));
    }),
    zones("old denials, from before www existed", |zones, spares| {
        let is_old = |line: &&String| {
            is_denial(line) || is(line, "RRSIG") && (covers(line, "NSEC") || covers(line, "NSEC3"))
        };
        zones.parent.retain(|line| !is_old(&line));
        zones.parent.extend(spares.without_www.parent.iter().filter(is_old).cloned());
    }),
    zones("denials with another salt", |zones, _| {
        for line in
            zones.parent.iter_mut().filter(|line| is(line, "NSEC3") || is(line, "NSEC3PARAM"))
        {
            edit_word(line, 7, |_| "CCDD".into());
        }
    })
    .of_nsec3(),
    zones("denials with another number of iterations", |zones, _| {
        for line in
            zones.parent.iter_mut().filter(|line| is(line, "NSEC3") || is(line, "NSEC3PARAM"))
        {
            edit_word(line, 6, |_| "2".into());
        }
    })
    .of_nsec3(),
    zones("denials with an unknown hash algorithm", |zones, _| {
        for line in zones.parent.iter_mut().filter(|line| is(line, "NSEC3")) {
            edit_word(line, 4, |_| "2".into());
        }
    })
    .of_nsec3(),
    zones("denials with the flag Opt-Out changed", |zones, _| {
        for line in zones.parent.iter_mut().filter(|line| is(line, "NSEC3")) {
            edit_word(line, 5, |flags| if flags == "0" { "1".into() } else { "0".into() });
        }
    })
    .of_nsec3(),
    plan("51 iterations", |plan| plan.denial = with_iterations(plan.denial, 51)).of_nsec3(),
    plan("150 iterations", |plan| plan.denial = with_iterations(plan.denial, 150)).of_nsec3(),
];

const DELEGATIONS: &[Damage] = &[
    zones("one of two keys missing", |zones, _| remove(&mut zones.parent, "", "DNSKEY", "256 3")),
    zones("no keys", |zones, _| remove(&mut zones.parent, "", "DNSKEY", "")),
    zones("keys without signature", |zones, _| unsign(&mut zones.parent, "", "DNSKEY")),
    zones("no DS records", |zones, _| remove(&mut zones.parent, "child.", "DS", "")),
    zones("DS without signature", |zones, _| unsign(&mut zones.parent, "child.", "DS")),
    zones("DS with another digest", |zones, _| {
        for line in zones.parent.iter_mut().filter(|line| is(line, "DS")) {
            let last = line.pop();
            line.push(if last == Some('0') { '1' } else { '0' });
        }
    }),
    zones("child without signatures", |zones, _| {
        zones.child.retain(|line| {
            !["RRSIG", "NSEC", "NSEC3", "NSEC3PARAM", "DNSKEY"].iter().any(|rtype| is(line, rtype))
        });
    }),
    zones("child without keys", |zones, _| zones.child.retain(|line| !is(line, "DNSKEY"))),
    zones("child with unsigned keys", |zones, _| {
        zones.child.retain(|line| !(is(line, "RRSIG") && covers(line, "DNSKEY")));
    }),
    zones("child with keys of an unknown algorithm", |zones, _| {
        for line in &mut zones.child {
            if is(line, "DNSKEY") {
                edit_word(line, 6, |_| "200".into());
            } else if is(line, "RRSIG") {
                edit_word(line, 5, |_| "200".into());
            }
        }
    }),
    plan("child with a revoked key", |plan| plan.flags = Some((0, "257", "385"))),
    plan("child with a data key without the flag Zone Key", |plan| {
        plan.flags = Some((1, "256", "0"));
    }),
    plan("DS of an unknown algorithm", |plan| plan.ds = vec![("-2", vec![(" 15 2 ", " 200 2 ")])]),
    plan("DS of an unknown digest type", |plan| {
        plan.ds = vec![("-2", vec![(" 15 2 ", " 15 200 ")])];
    }),
    plan("DS with an algorithm that no key has", |plan| {
        plan.ds = vec![("-2", vec![(" 15 2 ", " 13 2 ")])];
    }),
    plan("DS of an unknown algorithm, and a valid one", |plan| {
        plan.ds = vec![("-2", vec![(" 15 2 ", " 200 2 ")]), ("-2", Vec::new())];
    }),
    plan("DS with a wrong digest, and one with SHA-1", |plan| {
        plan.ds = vec![("-2", vec![("0", "1"), ("A", "B"), ("F", "E")]), ("-1", Vec::new())];
    }),
    plan("DS with SHA-384", |plan| plan.ds = vec![("-aSHA-384", Vec::new())]),
];

const REPLIES: &[Damage] = &[
    replies("wildcards without proof", |reply, _| {
        if reply.is_for("x.w.signed.test", A) || reply.is_for("x.y.w.signed.test", A) {
            reply.sections[1].retain(|record| !record.is_denial());
        }
        Ok(())
    }),
    replies("wildcard expanded below a name that exists", |reply, upstream| {
        if reply.is_for("x.e.w.signed.test", A) {
            copy(reply, upstream, "x.w.signed.test", A)?;
            for record in &mut reply.sections[0] {
                record.owner = wire_name("x.e.w.signed.test");
            }
        }
        Ok(())
    }),
    replies("alias of a DNAME with another target", |reply, upstream| {
        if reply.is_for("www.dname.signed.test", A) {
            reply.sections[0].truncate(3);
            for record in reply.sections[0].iter_mut().filter(|record| record.rtype == CNAME) {
                record.data = wire_name("www.signed.test");
            }
            let target = upstream.query("www.signed.test", A)?;
            reply.sections[0].extend(target.sections.into_iter().next().unwrap_or_default());
        }
        Ok(())
    }),
    replies("DNAME without its alias", |reply, _| {
        if reply.is_for("www.dname.signed.test", A) {
            reply.sections[0].truncate(2);
        }
        Ok(())
    }),
    replies("alias of a DNAME without the DNAME", |reply, _| {
        if reply.is_for("www.dname.signed.test", A) {
            reply.sections[0].drain(..2);
        }
        Ok(())
    }),
    replies("DS denied by the child", |reply, upstream| {
        // The type SPF does not exist either, but its denial is at the child's side.
        if reply.is_for("child.signed.test", DS) {
            copy(reply, upstream, "child.signed.test", 99)
        } else {
            Ok(())
        }
    }),
    replies("denials of types as denials of names", |reply, _| {
        if reply.is_for("www.signed.test", AAAA) || reply.is_for("ent.signed.test", A) {
            reply.set_rcode(NXDOMAIN);
        }
        Ok(())
    }),
    replies("denial of a name as denial of a type", |reply, _| {
        if reply.is_for("a.missing.signed.test", A) {
            reply.set_rcode(NOERROR);
        }
        Ok(())
    }),
    replies("denial of another name", |reply, upstream| {
        if reply.is_for("a.missing.signed.test", A) {
            copy(reply, upstream, "zz.signed.test", A)
        } else {
            Ok(())
        }
    }),
    replies("denial by the child", |reply, upstream| {
        if reply.is_for("both.signed.test", AAAA) {
            copy(reply, upstream, "zz.child.signed.test", AAAA)
        } else {
            Ok(())
        }
    }),
    replies("denial without SOA", |reply, _| {
        if reply.is_for("a.missing.signed.test", A) {
            reply.sections[1].retain(Record::is_denial);
        }
        Ok(())
    }),
];

/// Replaces a reply by that to another question.
fn copy(reply: &mut Reply, upstream: &Upstream, name: &str, rtype: u16) -> Result<()> {
    let other = upstream.query(name, rtype)?;
    reply.set_rcode(other.rcode());
    reply.sections = other.sections;
    Ok(())
}

fn with_iterations(denial: Denial, iterations: u16) -> Denial {
    match denial {
        Denial::Nsec => Denial::Nsec,
        Denial::Nsec3 { .. } => Denial::Nsec3 { iterations },
        Denial::OptOut { .. } => Denial::OptOut { iterations },
        Denial::LongSalt { .. } => Denial::LongSalt { iterations },
    }
}

fn word(line: &str, at: usize) -> Option<&str> {
    line.split(' ').nth(at)
}

fn owner(line: &str) -> &str {
    word(line, 0).unwrap_or_default()
}

/// True if the record has this type.
fn is(line: &str, rtype: &str) -> bool {
    word(line, 3) == Some(rtype)
}

fn is_denial(line: &str) -> bool {
    is(line, "NSEC") || is(line, "NSEC3")
}

/// True if the signature covers this type.
fn covers(line: &str, rtype: &str) -> bool {
    word(line, 4) == Some(rtype)
}

fn has_owner(line: &str, relative: &str) -> bool {
    owner(line) == format!("{relative}signed.test.")
}

fn is_signature(line: &str, owner: &str, rtype: &str) -> bool {
    has_owner(line, owner) && is(line, "RRSIG") && covers(line, rtype)
}

/// Removes the signatures of an RRset.
fn unsign(lines: &mut Vec<String>, owner: &str, rtype: &str) {
    lines.retain(|line| !is_signature(line, owner, rtype));
}

/// Returns the signatures of an RRset.
fn signatures(lines: &[String], owner: &str, rtype: &str) -> Vec<String> {
    lines.iter().filter(|line| is_signature(line, owner, rtype)).cloned().collect()
}

/// Removes the records of an RRset that contain a text.
fn remove(lines: &mut Vec<String>, owner: &str, rtype: &str, text: &str) {
    lines.retain(|line| !(has_owner(line, owner) && is(line, rtype) && line.contains(text)));
}

/// Replaces a text in the records of an RRset.
fn edit(lines: &mut [String], owner: &str, rtype: &str, from: &str, to: &str) {
    for line in lines.iter_mut().filter(|line| has_owner(line, owner) && is(line, rtype)) {
        *line = line.replacen(from, to, 1);
    }
}

/// Changes a field of a record.
fn edit_word(line: &mut String, at: usize, change: impl FnOnce(&str) -> String) {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    if let Some(word) = words.get_mut(at) {
        *word = change(word);
    }
    *line = words.join(" ");
}

/// Changes the data of the signature of `www`: type covered, algorithm, labels, original TTL, expiration, inception, key
/// tag, signer and signature.
fn edit_signature(lines: &mut [String], change: impl Fn(&mut [String])) {
    for line in lines.iter_mut().filter(|line| is_signature(line, "www.", "A")) {
        let mut words: Vec<String> =
            line.splitn(13, ' ').map(|word| word.replace(' ', "")).collect();
        change(&mut words[4..]);
        *line = words.join(" ");
    }
}
