//! Labels by which a queried name defines its own answer. The test authoritative server and the checks both use the
//! table below, and no other definition of the answers.
//!
//! A name is `NONCE . DIRECTIVE … . ZONE`. The nonce makes the name new to every cache. Each directive is one label.
//! Directives are parsed from left to right. Their order matters only if one of them makes the name an alias.
//!
//! | label | meaning |
//! |---|---|
//! | `v4-1-2-3-4` | an A record; may occur several times |
//! | `v6-20010db8000000000000000000000001` | an AAAA record (32 hexadecimal digits); may occur several times |
//! | `many-60` | 60 A records, from 1.1.0.1 upwards; a name has at most 4000 A records, regardless of its labels |
//! | `ttl-600` | TTL of all records in seconds; the default is 300 |
//! | `unequal` | the first record of an RRset has the full TTL, and each further record has half of it (forbidden by RFC 2181 §5.2) |
//! | `soa-300-60` | TTL and MINIMUM of the SOA record in a negative answer; the default is 300 and 300. In an unsigned zone, the owner of the SOA record is the name that begins with this label. A cache therefore stores SOA records with different values separately |
//! | `nosoa` | negative answers have no SOA record |
//! | `mx`, `ns`, `srv` | a record of this type that refers to `NONCE.host.REST`, with the A records of that host as additional data; REST is the part of the name after this label |
//! | `txt` | a TXT record: `conform` |
//! | `https-1-2-3-4`, `svcb-1-2-3-4` | a record of this type: priority 1, target `.`, `alpn=h2`, `ipv4hint=1.2.3.4` |
//! | `case` | owner names in replies have alternating letter case; the question is copied from the query |
//! | `ad` | replies have AD set, like the replies of a validating server |
//! | `ede-15` | replies with an OPT record contain this extended error (RFC 8914) |
//! | `oob` | replies to queries for A and AAAA contain one more answer record: the address [`EVIL4`] or [`EVIL6`] for `NONCE.REST`, which was not queried |
//! | `alien` | like `oob`, but the address is for `NONCE.REST` in ZONE itself, even if the name is in a subzone |
//! | `mixed` | answers to AAAA queries also contain the A records, and answers to A queries also contain the AAAA records |
//! | `a-FATE`, `aaaa-FATE`, `all-FATE` | treatment of queries for A, for AAAA, and for any type (see below); only the first label that matches the queried type applies |
//! | `cname`, `cname-60` | the name is an alias for `NONCE.REST`, with this TTL; labels to the left of this label apply to the alias itself |
//! | `hop` | like `cname`, but the target is in the zone `b.ZONE`: it is `NONCE.REST` with `b.ZONE` in place of `ZONE` |
//! | `dname` | `dname.REST` has a DNAME record for `REST`, so `NONCE.dname.REST` becomes `NONCE.REST` (RFC 6672) |
//! | `loop` | the name is an alias of itself |
//! | `half` | the reply contains only the alias, without the records of its target |
//! | `wild` | the name comes from the wildcard `*.wild.REST`; this label has no effect in unsigned zones |
//!
//! FATE, the treatment of a query in the labels `a-FATE`, `aaaa-FATE` and `all-FATE`, is one of these:
//!
//! | FATE | reply |
//! |---|---|
//! | `nodata` | NODATA |
//! | `rcode-3` | this RCODE |
//! | `silent` | no reply |
//! | `delay-1500` | a normal reply after 1500 ms |
//! | `tc` | truncated and empty over UDP, complete over TCP |
//! | `tcponly` | no reply over UDP |
//! | `noedns` | FORMERR for queries with an OPT record (RFC 6891 §7) |
//! | `badid`, `badport`, `badquestion` | a forged reply with [`EVIL4`] or [`EVIL6`], and 100 ms later the correct one. The forged reply has a wrong ID (`badid`), comes from a wrong port (`badport`), or contains a different question (`badquestion`) |
//!
//! The last label before the zone name (ZONE) may select a subzone:
//!
//! | subzone | content |
//! |---|---|
//! | `b` | unsigned |
//! | `secure` | signed, NSEC |
//! | `nsec3` | signed, NSEC3 |
//! | `bogus` | signatures that do not verify |
//! | `expired` | signatures that expired last year |
//!
//! A name without directives exists but has no records.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use domain::base::iana::Rtype;
use domain::base::name::{Label, OwnedLabel, ToLabelIter};

use crate::message::Name;

/// Address of forged A records; no check accepts it.
pub const EVIL4: Ipv4Addr = Ipv4Addr::new(6, 6, 6, 6);
/// Address of forged AAAA records.
pub const EVIL6: Ipv6Addr = Ipv6Addr::new(0x2001, 0x666, 0, 0, 0, 0, 0, 0x666);
/// Maximum number of A records of a name. With this limit, a compressed answer without signatures fits into a message,
/// and the 16-bit record counts do not overflow.
const MOST_ADDRESSES: usize = 4000;
/// Default TTL in seconds.
pub const TTL: u32 = 300;

/// Zones of the test authoritative server: the zone given by the user, and those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tree {
    /// The zone ZONE itself, which is unsigned.
    Plain,
    /// The zone `b.ZONE`, which is unsigned.
    Other,
    /// The zone `secure.ZONE`, which is signed and proves negative answers by NSEC.
    Secure,
    /// The zone `nsec3.ZONE`, which is signed and proves negative answers by NSEC3.
    Nsec3,
    /// The zone `bogus.ZONE`, whose signatures do not verify.
    Bogus,
    /// The zone `expired.ZONE`, whose signatures have expired.
    Expired,
}

impl Tree {
    /// All zones.
    pub const ALL: [Tree; 6] =
        [Tree::Plain, Tree::Other, Tree::Secure, Tree::Nsec3, Tree::Bogus, Tree::Expired];

    /// Returns the label that precedes ZONE in the name of this zone, or `None` for ZONE itself.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Tree::Plain => None,
            Tree::Other => Some("b"),
            Tree::Secure => Some("secure"),
            Tree::Nsec3 => Some("nsec3"),
            Tree::Bogus => Some("bogus"),
            Tree::Expired => Some("expired"),
        }
    }

    /// True for zones with signatures, correct or not.
    pub fn is_signed(self) -> bool {
        !matches!(self, Tree::Plain | Tree::Other)
    }

    /// Returns the name of this zone: the label of the zone, if it has one, followed by `zone`.
    ///
    /// # Panics
    /// Panics if the result exceeds the maximum length of a name.
    pub fn apex(self, zone: &Name) -> Name {
        self.label().map_or_else(|| zone.clone(), |label| prepend(label, zone))
    }
}

/// Special treatment of a query by the test authoritative server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// A NODATA reply.
    NoData,
    /// A reply with this RCODE and without records, except for the SOA record of a negative answer.
    Rcode(u16),
    /// No reply.
    Silent,
    /// A normal reply after this delay.
    Delay(Duration),
    /// An empty truncated reply over UDP, and the complete reply over TCP.
    Truncated,
    /// No reply over UDP, and a normal reply over TCP.
    TcpOnly,
    /// FORMERR if the query has an OPT record.
    NoEdns,
    /// A forged reply, followed by the correct reply.
    Forged(Forgery),
}

/// Part of a forged reply that differs from the correct reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forgery {
    /// The message ID of the reply.
    Id,
    /// The UDP port from which the reply is sent.
    Port,
    /// The question section of the reply.
    Question,
}

/// Queried types to which a special treatment ([`Fate`]) applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Queries for A.
    A,
    /// Queries for AAAA.
    Aaaa,
    /// Queries for any type.
    All,
}

/// Alias from one name to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Alias {
    /// A CNAME record with this target and TTL.
    Cname {
        /// Target of the CNAME record.
        target: Name,
        /// TTL of the CNAME record, in seconds.
        ttl: u32,
    },
    /// A DNAME record of `owner`, and the CNAME record synthesized from the DNAME record.
    Dname {
        /// Owner of the DNAME record.
        owner: Name,
        /// Target of the DNAME record. In a queried name that ends with the owner name, the target replaces the owner
        /// name.
        replacement: Name,
        /// Target of the synthesized CNAME record.
        target: Name,
    },
}

impl Alias {
    /// Returns the target of the alias.
    pub fn target(&self) -> &Name {
        match self {
            Alias::Cname { target, .. } | Alias::Dname { target, .. } => target,
        }
    }
}

/// Behaviour of the test authoritative server for queries of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate label")]
pub struct Behaviour {
    /// A records, 4000 at most.
    pub v4: Vec<Ipv4Addr>,
    /// AAAA records.
    pub v6: Vec<Ipv6Addr>,
    /// TTL of the records, in seconds.
    pub ttl: u32,
    /// True if the records of an RRset have different TTLs.
    pub unequal: bool,
    /// TTL and MINIMUM of the SOA record in negative answers, in seconds. If `None`, negative answers have no SOA
    /// record.
    pub soa: Option<(u32, u32)>,
    /// Type (MX, NS or SRV) and host name of a record that refers to a host.
    pub host: Option<(Rtype, Name)>,
    /// True if the name has a TXT record.
    pub txt: bool,
    /// Type of a service binding record (HTTPS or SVCB), and the IPv4 address in its `ipv4hint`.
    pub hint: Option<(Rtype, Ipv4Addr)>,
    /// True if owner names in replies have alternating letter case.
    pub odd_case: bool,
    /// True if replies have AD set.
    pub ad: bool,
    /// Extended error (EDE) of replies.
    pub ede: Option<u16>,
    /// Owner of a forged address record that is added to the answer.
    pub victim: Option<Name>,
    /// True if answers to A queries also contain the AAAA records, and answers to AAAA queries also contain the A
    /// records.
    pub mixed: bool,
    /// Special treatment of queries, each with the queried types to which it applies, in the order of the labels.
    pub fates: Vec<(Scope, Fate)>,
    /// Alias record of the name, if the name is an alias.
    pub alias: Option<Alias>,
    /// True if a reply contains only the alias, without the records of its target.
    pub half: bool,
    /// Parent of a wildcard. All names below this parent are synthesized from the wildcard, whose name consists of the
    /// label `*` and the name of the parent.
    pub wildcard: Option<Name>,
}

impl Default for Behaviour {
    fn default() -> Behaviour {
        Behaviour {
            v4: Vec::new(),
            v6: Vec::new(),
            ttl: TTL,
            unequal: false,
            soa: Some((TTL, TTL)),
            host: None,
            txt: false,
            hint: None,
            odd_case: false,
            ad: false,
            ede: None,
            victim: None,
            mixed: false,
            fates: Vec::new(),
            alias: None,
            half: false,
            wildcard: None,
        }
    }
}

impl Behaviour {
    /// Returns the special treatment of queries for `qtype`, if a label defines one.
    pub fn fate(&self, qtype: Rtype) -> Option<Fate> {
        let fits = |scope| match scope {
            Scope::A => qtype == Rtype::A,
            Scope::Aaaa => qtype == Rtype::AAAA,
            Scope::All => true,
        };
        self.fates.iter().find(|(scope, _)| fits(*scope)).map(|(_, fate)| *fate)
    }

    /// Adds A records up to the maximum. Other records need no maximum: each of them is defined by a separate label of
    /// the queried name, and the length of a name is limited.
    fn add_v4(&mut self, addresses: impl Iterator<Item = Ipv4Addr>) {
        let room = MOST_ADDRESSES.saturating_sub(self.v4.len());
        self.v4.extend(addresses.take(room));
    }
}

/// A parsed name of the test authoritative server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedName {
    /// Zone that contains the name.
    pub tree: Tree,
    /// Behaviour of the test authoritative server for this name, defined by the labels.
    pub behaviour: Behaviour,
}

/// Parses `name`, and returns `None` if it does not lie in `zone`. The nonce consists of the labels before the first
/// directive. Any later label that is not a directive has no effect.
pub fn read(name: &Name, zone: &Name) -> Option<ParsedName> {
    if !name.ends_with(zone) {
        return None;
    }
    let above = name.label_count() - zone.label_count();
    let labels: Vec<&Label> = name.iter_labels().take(above).collect();
    let tree = labels.last().and_then(|last| tree_of(last)).unwrap_or(Tree::Plain);
    let own = &labels[..above - usize::from(tree != Tree::Plain)];
    let apex = tree.apex(zone);
    let mut behaviour = Behaviour::default();
    let nonce: Vec<&Label> = own.iter().take_while(|label| !is_directive(label)).copied().collect();
    for (n, label) in own.iter().enumerate().skip(nonce.len()) {
        let rest = &own[n + 1..];
        let leads = TargetParts { nonce: &nonce, rest, apex: &apex, zone };
        if apply_label(&text(label), &leads, name, &mut behaviour) == Continuation::Ends {
            break;
        }
    }
    Some(ParsedName { tree, behaviour })
}

/// Result of parsing a label. After `On`, the next label applies to the same name. After `Ends`, the remaining labels
/// apply to the target of an alias.
#[derive(PartialEq, Eq)]
enum Continuation {
    On,
    Ends,
}

/// Parts of a queried name, from which the names in its records are composed.
struct TargetParts<'a> {
    nonce: &'a [&'a Label],
    rest: &'a [&'a Label],
    apex: &'a Name,
    zone: &'a Name,
}

impl TargetParts<'_> {
    /// Returns the name `NONCE.REST`, which is the target of an alias or the owner of a forged record.
    fn target(&self, apex: &Name) -> Name {
        chain(self.nonce, &chain(self.rest, apex))
    }

    /// Returns the host name `NONCE.host.REST`, or `None` if this name would exceed the maximum length of a name.
    fn host(&self) -> Option<Name> {
        let host = Label::from_slice(b"host").ok()?;
        let rest = try_push(host, &chain(self.rest, self.apex))?;
        self.nonce.iter().rev().try_fold(rest, |name, label| try_push(label, &name))
    }
}

fn chain(labels: &[&Label], end: &Name) -> Name {
    labels.iter().rev().fold(end.clone(), |name, label| push(label, &name))
}

fn push(label: &Label, name: &Name) -> Name {
    try_push(label, name).expect("a target is no longer than the name that contains it")
}

fn try_push(label: &Label, name: &Name) -> Option<Name> {
    let mut octets = vec![label.len() as u8];
    octets.extend_from_slice(label.as_slice());
    octets.extend_from_slice(name.as_slice());
    Name::from_octets(octets).ok()
}

/// Prepends a label to a domain name.
///
/// # Panics
/// Panics if the result exceeds the maximum length of a name.
pub(crate) fn prepend(label: &str, name: &Name) -> Name {
    let label: OwnedLabel = label.parse().expect("labels are literals");
    push(label.as_ref(), name)
}

fn text(label: &Label) -> String {
    String::from_utf8_lossy(label.as_slice()).to_ascii_lowercase()
}

fn tree_of(label: &Label) -> Option<Tree> {
    let text = text(label);
    Tree::ALL.into_iter().find(|tree| tree.label() == Some(text.as_str()))
}

/// True if the label is a directive, which means that the table at the top of this file contains it. A name that begins
/// with a directive has no nonce. Only resolvers that minimize query names send queries for such names (RFC 9156).
pub(crate) fn is_directive(label: &Label) -> bool {
    let text = text(label);
    let (verb, _) = text.split_once('-').unwrap_or((&text, ""));
    [
        "v4", "v6", "many", "ttl", "unequal", "soa", "nosoa", "mx", "ns", "srv", "txt", "https",
        "svcb", "case", "ad", "ede", "oob", "alien", "mixed", "a", "aaaa", "all", "cname", "hop",
        "dname", "loop", "half", "wild",
    ]
    .contains(&verb)
}

fn apply_label(
    label: &str,
    leads: &TargetParts<'_>,
    name: &Name,
    behaviour: &mut Behaviour,
) -> Continuation {
    let (verb, value) = label.split_once('-').unwrap_or((label, ""));
    let number = |text: &str| text.parse::<u32>().ok();
    match verb {
        "v4" => behaviour.add_v4(dashed(value).into_iter()),
        "v6" => behaviour.v6.extend(u128::from_str_radix(value, 16).ok().map(Ipv6Addr::from)),
        "many" => {
            let first = u32::from(Ipv4Addr::new(1, 1, 0, 1));
            let numbers = 0..number(value).unwrap_or(0);
            behaviour.add_v4(numbers.map(|n| Ipv4Addr::from(first + n)));
        }
        "ttl" => behaviour.ttl = number(value).unwrap_or(TTL),
        "unequal" => behaviour.unequal = true,
        "soa" => {
            behaviour.soa =
                value.split_once('-').and_then(|(ttl, min)| Some((number(ttl)?, number(min)?)));
        }
        "nosoa" => behaviour.soa = None,
        "mx" => behaviour.host = leads.host().map(|host| (Rtype::MX, host)),
        "ns" => behaviour.host = leads.host().map(|host| (Rtype::NS, host)),
        "srv" => behaviour.host = leads.host().map(|host| (Rtype::SRV, host)),
        "txt" => behaviour.txt = true,
        "https" => behaviour.hint = dashed(value).map(|hint| (Rtype::HTTPS, hint)),
        "svcb" => behaviour.hint = dashed(value).map(|hint| (Rtype::SVCB, hint)),
        "case" => behaviour.odd_case = true,
        "ad" => behaviour.ad = true,
        "ede" => behaviour.ede = value.parse().ok(),
        "oob" => behaviour.victim = Some(leads.target(leads.apex)),
        "alien" => behaviour.victim = Some(leads.target(leads.zone)),
        "mixed" => behaviour.mixed = true,
        "half" => behaviour.half = true,
        "wild" => {
            behaviour.wildcard = Some(prepend("wild", &chain(leads.rest, leads.apex)));
        }
        "a" => behaviour.fates.extend(fate(value).map(|fate| (Scope::A, fate))),
        "aaaa" => behaviour.fates.extend(fate(value).map(|fate| (Scope::Aaaa, fate))),
        "all" => behaviour.fates.extend(fate(value).map(|fate| (Scope::All, fate))),
        "cname" | "hop" => {
            let other = Tree::Other.apex(leads.zone);
            let apex = if verb == "hop" { &other } else { leads.apex };
            let ttl = number(value).unwrap_or(behaviour.ttl);
            behaviour.alias = Some(Alias::Cname { target: leads.target(apex), ttl });
            return Continuation::Ends;
        }
        "dname" => {
            let replacement = chain(leads.rest, leads.apex);
            behaviour.alias = Some(Alias::Dname {
                owner: prepend("dname", &replacement),
                target: leads.target(leads.apex),
                replacement,
            });
            return Continuation::Ends;
        }
        "loop" => {
            behaviour.alias = Some(Alias::Cname { target: name.clone(), ttl: behaviour.ttl });
            return Continuation::Ends;
        }
        _ => {}
    }
    Continuation::On
}

/// Parses an IPv4 address with hyphens in place of dots, such as `1-2-3-4`.
fn dashed(value: &str) -> Option<Ipv4Addr> {
    value.replace('-', ".").parse().ok()
}

fn fate(value: &str) -> Option<Fate> {
    let (verb, number) = value.split_once('-').unwrap_or((value, ""));
    Some(match verb {
        "nodata" => Fate::NoData,
        "rcode" => Fate::Rcode(number.parse().ok()?),
        "silent" => Fate::Silent,
        "delay" => Fate::Delay(Duration::from_millis(number.parse().ok()?)),
        "tc" => Fate::Truncated,
        "tcponly" => Fate::TcpOnly,
        "noedns" => Fate::NoEdns,
        "badid" => Fate::Forged(Forgery::Id),
        "badport" => Fate::Forged(Forgery::Port),
        "badquestion" => Fate::Forged(Forgery::Question),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::name;

    fn of(text: &str) -> ParsedName {
        read(&name(&format!("{text}.conform.example")), &name("conform.example")).unwrap()
    }

    #[test]
    fn records_and_their_ttls() {
        let place = of("x1.v4-1-2-3-4.V4-5-6-7-8.v6-20010db8000000000000000000000001.ttl-20");
        assert_eq!(place.tree, Tree::Plain);
        assert_eq!(place.behaviour.v4, [Ipv4Addr::new(1, 2, 3, 4), Ipv4Addr::new(5, 6, 7, 8)]);
        assert_eq!(place.behaviour.v6, ["2001:db8::1".parse::<Ipv6Addr>().unwrap()]);
        assert_eq!(place.behaviour.ttl, 20);
        assert_eq!(of("x1.many-300").behaviour.v4.len(), 300);
        for many in ["many-4001", "many-4294967295", "many-3000.v4-1-2-3-4.many-3000"] {
            assert_eq!(of(&format!("x1.{many}.v4-5-6-7-8")).behaviour.v4.len(), 4000, "{many}");
        }
        assert_eq!(of("x1.v4-5-6-7-8.many-5000").behaviour.v4.len(), 4000);
        assert_eq!(of("x1.soa-7-8").behaviour.soa, Some((7, 8)));
        assert_eq!(of("x1.nosoa").behaviour.soa, None);
        assert_eq!(of("x1"), ParsedName { tree: Tree::Plain, behaviour: Behaviour::default() });
        assert_eq!(read(&name("x.example"), &name("conform.example")), None);
    }

    #[test]
    fn fates() {
        let behaviour = of("x1.v4-1-2-3-4.aaaa-rcode-2.all-delay-30").behaviour;
        assert_eq!(behaviour.fate(Rtype::AAAA), Some(Fate::Rcode(2)));
        assert_eq!(behaviour.fate(Rtype::A), Some(Fate::Delay(Duration::from_millis(30))));
        assert_eq!(of("x1.a-badid").behaviour.fate(Rtype::A), Some(Fate::Forged(Forgery::Id)));
        assert_eq!(of("x1.a-badid").behaviour.fate(Rtype::AAAA), None);
    }

    #[test]
    fn aliases_keep_the_nonce_and_drop_their_own_label() {
        let alias = |text: &str| of(text).behaviour.alias.unwrap();
        let target = |text: &str| alias(text).target().to_string();
        assert_eq!(target("x1.cname-60.cname.v4-1-2-3-4"), "x1.cname.v4-1-2-3-4.conform.example");
        assert_eq!(target("x1.ttl-9.half.cname.v4-1-2-3-4"), "x1.v4-1-2-3-4.conform.example");
        assert_eq!(target("x1.hop.v4-1-2-3-4"), "x1.v4-1-2-3-4.b.conform.example");
        assert_eq!(target("x1.loop"), "x1.loop.conform.example");
        let Alias::Dname { owner, replacement, target } = alias("x1.dname.v4-1-2-3-4.secure")
        else {
            panic!("no DNAME");
        };
        assert_eq!(owner.to_string(), "dname.v4-1-2-3-4.secure.conform.example");
        assert_eq!(replacement.to_string(), "v4-1-2-3-4.secure.conform.example");
        assert_eq!(target.to_string(), "x1.v4-1-2-3-4.secure.conform.example");
    }

    #[test]
    fn zones_and_hosts() {
        assert_eq!(of("x1.v4-1-2-3-4.nsec3").tree, Tree::Nsec3);
        let (rtype, host) = of("x1.mx.v4-1-2-3-4").behaviour.host.unwrap();
        assert_eq!(rtype, Rtype::MX);
        assert_eq!(host.to_string(), "x1.host.v4-1-2-3-4.conform.example");
        // There is no host record if the name of the host would be too long.
        let long = format!("{}.mx.{}.{}", "x".repeat(63), "x".repeat(63), "x".repeat(63));
        let long = format!("{}.{long}", "x".repeat(42));
        assert_eq!(of(&long).behaviour.host, None);
        assert_eq!(
            of("x1.oob.v4-1-2-3-4").behaviour.victim.unwrap().to_string(),
            "x1.v4-1-2-3-4.conform.example"
        );
        assert_eq!(
            of("x1.alien.v4-1-2-3-4.b").behaviour.victim.unwrap().to_string(),
            "x1.v4-1-2-3-4.conform.example"
        );
    }
}
