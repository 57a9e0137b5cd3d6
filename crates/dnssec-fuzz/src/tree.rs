//! Zones of a case.
//!
//! ```text
//! fuzz.test ─┬─ c0000002a   names of the case (data of fuzz.test), or
//!            └─ z0000002a   zone of the case ─┬─ plain   unsigned zone
//!                                             └─ sec     signed zone
//! ```

use domain::base::Serial;
use domain::base::iana::Rtype;
use domain::base::rdata::RecordData;
use domain::rdata::nsec3::Nsec3Salt;
use domain::rdata::{Cname, Dname, Mx, Ns, Soa, ZoneRecordData};
use rand::RngExt;
use rand::rngs::StdRng;
use testbed::signed::{TestData, TestName, TestRecord, name, records};

use crate::keys::{ENTRY_KEY, KeyId, Pool, ZONE_KEY, ds};
use crate::names::{ROOT, below, rebase};

/// Origin of the templates.
const ORIGIN: &str = "base.";
/// Probability with which a zone has one of the RRsets of its template.
const PRESENT: f64 = 0.85;

/// Number of RRsets at the beginning of a template that are always present.
const ALWAYS: usize = 2;

/// Records at the names of a case. The address of the server is that of the authoritative server: Unbound looks for the
/// server of a zone if a response with DS records, or without them, is not from the zone above.
const NAMES: &str = "\
base. MX 10 a.base.
ns.base. A 127.77.0.1
a.base. A 192.0.2.1
a.base. A 192.0.2.2
a.base. AAAA 2001:db8::1
a.base. TXT \"text\"
b.base. AAAA 2001:db8::2
*.w.base. A 192.0.2.3
*.w.base. AAAA 2001:db8::3
x.deep.w.base. A 192.0.2.4
y.ent.base. A 192.0.2.5
alias.base. CNAME a.base.
alias2.base. CNAME alias.base.
aliasw.base. CNAME x.w.base.
aliasn.base. CNAME missing.base.
aliasp.base. CNAME a.plain.base.
aliass.base. CNAME a.sec.base.
*.cw.base. CNAME a.base.
d.base. DNAME w.base.
d2.base. DNAME sec.base.";

/// Records of a zone below another zone of the case.
const SMALL: &str = "\
ns.base. A 127.77.0.1
a.base. A 192.0.2.11
a.base. AAAA 2001:db8::11
*.w.base. A 192.0.2.13
y.ent.base. A 192.0.2.15";

/// Questions. The names are relative to the name or the zone of the case.
pub(crate) const QUESTIONS: &[(&str, Rtype)] = &[
    ("", Rtype::MX),
    ("", Rtype::A),
    ("", Rtype::NS),
    ("", Rtype::SOA),
    ("", Rtype::DS),
    ("", Rtype::DNSKEY),
    ("a", Rtype::A),
    ("a", Rtype::A),
    ("a", Rtype::AAAA),
    ("a", Rtype::TXT),
    ("a", Rtype::MX),
    ("a", Rtype::DS),
    ("a", Rtype::CNAME),
    ("b", Rtype::A),
    ("b", Rtype::AAAA),
    ("missing", Rtype::A),
    ("missing.a", Rtype::A),
    ("missing", Rtype::DS),
    ("b.missing", Rtype::AAAA),
    ("w", Rtype::A),
    ("x.w", Rtype::A),
    ("x.w", Rtype::AAAA),
    ("x.y.w", Rtype::A),
    ("x.w", Rtype::MX),
    ("x.w", Rtype::DS),
    ("x.deep.w", Rtype::A),
    ("y.deep.w", Rtype::A),
    ("*.w", Rtype::A),
    ("ent", Rtype::A),
    ("y.ent", Rtype::A),
    ("y.ent", Rtype::AAAA),
    ("z.ent", Rtype::A),
    ("alias", Rtype::A),
    ("alias", Rtype::CNAME),
    ("alias", Rtype::MX),
    ("alias2", Rtype::AAAA),
    ("aliasw", Rtype::A),
    ("aliasn", Rtype::A),
    ("aliasp", Rtype::A),
    ("aliass", Rtype::A),
    ("aliass", Rtype::MX),
    ("x.cw", Rtype::A),
    ("x.cw", Rtype::CNAME),
    ("d", Rtype::DNAME),
    ("d", Rtype::A),
    ("x.d", Rtype::A),
    ("x.y.d", Rtype::AAAA),
    ("a.d2", Rtype::A),
    ("missing.d2", Rtype::A),
    ("plain", Rtype::DS),
    ("plain", Rtype::NS),
    ("a.plain", Rtype::A),
    ("a.plain", Rtype::MX),
    ("missing.plain", Rtype::A),
    ("sec", Rtype::DS),
    ("sec", Rtype::DNSKEY),
    ("sec", Rtype::SOA),
    ("a.sec", Rtype::A),
    ("a.sec", Rtype::A),
    ("a.sec", Rtype::MX),
    ("missing.sec", Rtype::A),
    ("x.w.sec", Rtype::A),
];

/// Records with the same owner name and type.
#[derive(Clone, Debug)]
pub(crate) struct Rrset {
    pub(crate) owner: TestName,
    pub(crate) data: Vec<TestData>,
    pub(crate) ttl: u32,
}

impl Rrset {
    /// Returns the type of the records.
    pub(crate) fn rtype(&self) -> Rtype {
        self.data[0].rtype()
    }
}

/// Records that a zone uses to prove that names and types do not exist.
#[derive(Clone, Debug)]
pub(crate) enum Denial {
    /// NSEC records. The last record has this next name.
    Nsec { end: TestName },
    /// NSEC3 records.
    Nsec3 { iterations: u16, salt: Nsec3Salt<Vec<u8>>, opt_out: bool },
}

/// A key of a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneKey {
    pub(crate) id: KeyId,
    pub(crate) flags: u16,
}

/// A zone.
#[derive(Debug)]
pub(crate) struct Zone {
    pub(crate) apex: TestName,
    /// The keys, or nothing if the zone is unsigned. The first key is that of the DS record, and signs the keys. The
    /// last key signs all other records.
    pub(crate) keys: Vec<ZoneKey>,
    pub(crate) denial: Denial,
    pub(crate) sets: Vec<Rrset>,
}

impl Zone {
    /// True if the zone has keys.
    pub(crate) fn is_signed(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Returns the RRset of a name and type.
    pub(crate) fn set(&self, owner: &TestName, rtype: Rtype) -> Option<&Rrset> {
        self.sets.iter().find(|set| set.rtype() == rtype && set.owner == *owner)
    }

    /// Returns the types at a name.
    pub(crate) fn types(&self, owner: &TestName) -> Vec<Rtype> {
        self.sets.iter().filter(|set| set.owner == *owner).map(Rrset::rtype).collect()
    }

    /// True if the name has records.
    pub(crate) fn has(&self, owner: &TestName) -> bool {
        self.sets.iter().any(|set| set.owner == *owner)
    }

    /// True if the name has records, or is an ancestor of a name with records.
    pub(crate) fn exists(&self, name: &TestName) -> bool {
        self.sets.iter().any(|set| set.owner.ends_with(name))
    }

    /// True if the name is delegated to another zone.
    pub(crate) fn is_cut(&self, name: &TestName) -> bool {
        *name != self.apex && self.set(name, Rtype::NS).is_some()
    }
}

/// Zones of a case.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) zones: Vec<Zone>,
    /// Name below which all names of the case are.
    pub(crate) base: TestName,
}

impl Tree {
    /// Returns the index of the zone that has the records of a name and type. DS records are in the parent zone.
    pub(crate) fn zone_of(&self, name: &TestName, rtype: Rtype) -> Option<usize> {
        let has =
            |zone: &Zone| name.ends_with(&zone.apex) && (rtype != Rtype::DS || zone.apex != *name);
        let zones = self.zones.iter().enumerate().filter(|(_, zone)| has(zone));
        zones.max_by_key(|(_, zone)| zone.apex.label_count()).map(|(index, _)| index)
    }
}

/// Templates and keys, from which the zones of all cases are made.
#[derive(Debug)]
pub(crate) struct Forest {
    pub(crate) pool: Pool,
    names: Vec<TestRecord>,
    small: Vec<TestRecord>,
}

impl Forest {
    /// Returns templates with new keys.
    pub(crate) fn new() -> Forest {
        Forest { pool: Pool::new(), names: records(NAMES), small: records(SMALL) }
    }

    /// Returns the key of the trust anchor.
    pub(crate) fn anchor_key(&self) -> ZoneKey {
        ZoneKey { id: KeyId(0), flags: ENTRY_KEY }
    }

    /// Returns the zone of the trust anchor, without names of a case.
    pub(crate) fn anchor_zone(&self, end: TestName) -> Zone {
        let denial = Denial::Nsec { end };
        let mut zone =
            Zone { apex: name(ROOT), keys: vec![self.anchor_key()], denial, sets: Vec::new() };
        self.add_apex(&mut zone);
        zone
    }

    /// Returns the zones of a case with the name `base`. If `is_zone` is true, this is the apex of a zone. Otherwise its
    /// data are part of the zone with the trust anchor. `end` is the next name after all names of the case.
    pub(crate) fn tree(
        &self,
        base: &TestName,
        end: &TestName,
        is_zone: bool,
        rng: &mut StdRng,
    ) -> Tree {
        let mut anchor = self.anchor_zone(end.clone());
        let mut zones = Vec::new();
        let mut own = is_zone.then(|| self.zone(base, rng));
        if let Some(zone) = &own {
            self.delegate(&mut anchor, zone, rng);
        }
        let parent = own.as_mut().unwrap_or(&mut anchor);
        fill(parent, &self.names, base, rng);
        let (plain, sec) = (below("plain", base), below("sec", base));
        if rng.random_bool(PRESENT) {
            let mut zone = self.zone(&plain, rng);
            zone.keys.clear();
            zone.sets.retain(|set| set.rtype() != Rtype::DNSKEY);
            fill(&mut zone, &self.small, &plain, rng);
            self.delegate(parent, &zone, rng);
            zones.push(zone);
        }
        if rng.random_bool(PRESENT) {
            let mut zone = self.zone(&sec, rng);
            fill(&mut zone, &self.small, &sec, rng);
            self.delegate(parent, &zone, rng);
            zones.push(zone);
        }
        zones.extend(own);
        zones.push(anchor);
        Tree { zones, base: base.clone() }
    }

    /// Returns a signed zone that has only the records of its apex.
    fn zone(&self, apex: &TestName, rng: &mut StdRng) -> Zone {
        let id = |rng: &mut StdRng| KeyId(rng.random_range(1..self.pool.len()));
        let mut keys = vec![ZoneKey { id: id(rng), flags: ENTRY_KEY }];
        if rng.random_bool(0.5) {
            // The second key has the algorithm of the first, because validators disagree on mixtures.
            let other = (keys[0].id.0 + 2) % self.pool.len();
            keys.push(ZoneKey { id: KeyId(other), flags: ZONE_KEY });
        }
        let denial = if rng.random_bool(0.5) {
            Denial::Nsec { end: apex.clone() }
        } else {
            let salt: &[u8] = if rng.random_bool(0.5) { b"" } else { b"\xaa\xbb" };
            let salt = Nsec3Salt::from_octets(salt.to_vec()).expect("a short salt");
            let iterations = [0, 0, 1, 10][rng.random_range(0..4)];
            Denial::Nsec3 { iterations, salt, opt_out: rng.random_bool(0.4) }
        };
        let mut zone = Zone { apex: apex.clone(), keys, denial, sets: Vec::new() };
        self.add_apex(&mut zone);
        zone
    }

    fn add_apex(&self, zone: &mut Zone) {
        let (ns, admin) = (below("ns", &zone.apex), below("admin", &zone.apex));
        let [refresh, retry, expire, minimum] =
            [3600, 600, 86_400, 60].map(domain::base::Ttl::from_secs);
        let soa = Soa::new(ns.clone(), admin, Serial(1), refresh, retry, expire, minimum);
        let keys = zone.keys.iter().map(|key| self.pool.dnskey(key.id, key.flags));
        let keys: Vec<TestData> = keys.map(ZoneRecordData::Dnskey).collect();
        let mut add = |data, ttl| {
            zone.sets.push(Rrset { owner: zone.apex.clone(), data, ttl });
        };
        add(vec![ZoneRecordData::Soa(soa)], 300);
        add(vec![ZoneRecordData::Ns(Ns::new(ns))], 300);
        if !keys.is_empty() {
            add(keys, 3600);
        }
    }

    /// Adds the delegation of a zone to its parent zone.
    fn delegate(&self, parent: &mut Zone, zone: &Zone, rng: &mut StdRng) {
        let ns = zone.set(&zone.apex, Rtype::NS).expect("a zone has NS records").clone();
        parent.sets.push(ns);
        if let Some(key) = zone.keys.first() {
            let key = self.pool.dnskey(key.id, key.flags);
            let data = vec![ds(&zone.apex, &key, rng.random_bool(0.2))];
            parent.sets.push(Rrset { owner: zone.apex.clone(), data, ttl: 3600 });
        }
    }
}

/// Adds most of the RRsets of a template. The first ones are always added.
fn fill(zone: &mut Zone, template: &[TestRecord], base: &TestName, rng: &mut StdRng) {
    let of_one_set =
        |a: &TestRecord, b: &TestRecord| a.owner() == b.owner() && a.rtype() == b.rtype();
    for (index, set) in template.chunk_by(of_one_set).enumerate() {
        if index >= ALWAYS && !rng.random_bool(PRESENT) {
            continue;
        }
        let data = set.iter().map(|record| rebased(record.data(), base)).collect();
        zone.sets.push(Rrset { owner: moved(set[0].owner(), base), data, ttl: 300 });
    }
}

fn moved(from: &TestName, base: &TestName) -> TestName {
    rebase(from, &name(ORIGIN), base).expect("the name is in the template")
}

fn rebased(data: &TestData, base: &TestName) -> TestData {
    match data {
        ZoneRecordData::Cname(cname) => {
            ZoneRecordData::Cname(Cname::new(moved(cname.cname(), base)))
        }
        ZoneRecordData::Dname(dname) => {
            ZoneRecordData::Dname(Dname::new(moved(dname.dname(), base)))
        }
        ZoneRecordData::Mx(mx) => {
            ZoneRecordData::Mx(Mx::new(mx.preference(), moved(mx.exchange(), base)))
        }
        other => other.clone(),
    }
}
