//! Arbitrary messages from clients and upstreams cause no panic, and no reply that the client
//! cannot accept.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use dns64::config::Settings;
use dns64::walk::Walk;
use dns64::{Cache, Cookies, KeyBuf, Prefix, Transport};
use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::rdata::UnknownRecordData;
use domain::base::{Message, MessageBuilder, Name, Ttl};
use domain::rdata::{A, Aaaa, Cname};
use proptest::prelude::*;
use units::Nanos;
use wire::view::Message as View;

/// A query for `host.example`, with an optional EDNS size.
fn query(qtype: Rtype, edns: Option<u16>, dnssec_ok: bool) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_rd(true);
    builder.header_mut().set_id(0x1234);
    let mut question = builder.question();
    question.push((name("host.example"), qtype, Class::IN)).unwrap();
    let mut additional = question.additional();
    if let Some(size) = edns {
        let opt = |opt: &mut domain::base::message_builder::OptBuilder<'_, _>| {
            opt.set_udp_payload_size(size);
            opt.set_dnssec_ok(dnssec_ok);
            Ok(())
        };
        additional.opt(opt).unwrap();
    }
    additional.finish()
}

fn name(text: &str) -> Name<Vec<u8>> {
    text.parse().unwrap()
}

/// The settings of a server. `dns64` contains keys of the table `[dns64]`, and `more` contains
/// further tables.
fn settings(dns64: &str, more: &str) -> Settings {
    let text = format!("[dns64]\n{dns64}\n{more}\n[[upstream]]\naddress = '192.0.2.1'\n");
    Settings::from_text(&text, Path::new("test.toml")).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// The reply of a server with an empty cache.
fn walk(
    settings: &Settings,
    bytes: &[u8],
    transport: Transport,
    mut ask: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let (cache, cookies) = (Cache::new(0), Cookies::new());
    let walk = Walk { settings, cache: &cache, cookies: &cookies, now: Nanos(0) };
    walk.reply(bytes, CLIENT, transport, |key: &KeyBuf| ask(key.question()))
}

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Answer of an upstream: `aliases` aliases, followed by `addresses` address records.
#[derive(Clone, Debug)]
struct Said {
    rcode: u8,
    aliases: u8,
    addresses: u8,
    aaaa_too: bool,
    ttl: u32,
}

fn said() -> impl Strategy<Value = Said> {
    (
        prop_oneof![6 => Just(0u8), 1 => Just(3u8), 1 => 0u8..16],
        0u8..20,
        0u8..130,
        any::<bool>(),
        any::<u32>(),
    )
        .prop_map(|(rcode, aliases, addresses, aaaa_too, ttl)| Said {
            rcode,
            aliases,
            addresses,
            aaaa_too,
            ttl,
        })
}

fn reply_of(said: &Said, question: &[u8]) -> Vec<u8> {
    let (wire, rest) = question.split_at(question.len() - 4);
    let asked = Name::from_octets(wire.to_vec()).unwrap();
    let qtype = Rtype::from_int(u16::from_be_bytes([rest[0], rest[1]]));
    let mut builder = MessageBuilder::new_vec();
    let header = builder.header_mut();
    header.set_qr(true);
    header.set_ra(true);
    header.set_rcode(Rcode::checked_from_int(said.rcode).unwrap());
    let mut question = builder.question();
    question.push((&asked, qtype, Class::IN)).unwrap();
    let mut answer = question.answer();
    let ttl = Ttl::from_secs(said.ttl);
    let mut owner = asked;
    for n in 0..said.aliases {
        let target = name(&format!("alias{n}.example"));
        answer.push((&owner, ttl, Cname::new(&target))).unwrap();
        owner = target;
    }
    for n in 0..said.addresses {
        match qtype {
            Rtype::A => answer.push((&owner, ttl, A::new(Ipv4Addr::new(8, 8, 4, n)))).unwrap(),
            Rtype::AAAA if said.aaaa_too => {
                answer
                    .push((
                        &owner,
                        ttl,
                        Aaaa::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n.into())),
                    ))
                    .unwrap();
            }
            _ => {}
        }
    }
    answer.finish()
}

/// An AAAA query without an answer, and an A query for a name that does not exist. Regression test:
/// this combination caused a panic, which a fuzzer found.
#[test]
fn no_answer_then_nxdomain_is_nxdomain() {
    let ask = |question: &[u8]| {
        let is_a = question.ends_with(&[0, 1, 0, 1]);
        is_a.then(|| {
            reply_of(
                &Said { rcode: 3, aliases: 0, addresses: 0, aaaa_too: false, ttl: 0 },
                question,
            )
        })
    };
    let reply =
        walk(&settings("", ""), &query(Rtype::AAAA, None, false), Transport::Udp, ask).unwrap();
    assert_eq!(View::new(&reply).unwrap().rcode().in_header(), 3);
}

/// Checks that the reply is a response of at most `limit` octets, and that all its records can be
/// parsed.
fn check(reply: &[u8], limit: usize) -> Result<(), TestCaseError> {
    prop_assert!(reply.len() <= limit, "{} octets for a client that takes {limit}", reply.len());
    let view = View::new(reply).unwrap();
    prop_assert!(view.is_response());
    let message = Message::from_octets(reply).unwrap();
    for section in [message.answer(), message.authority(), message.additional()] {
        for record in section.unwrap() {
            prop_assert!(record.is_ok());
        }
    }
    Ok(())
}

/// Settings of various kinds: ignoring signatures, excluding all AAAA records, or with a separate
/// mode for a domain.
fn any_settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), domain_keys()).prop_map(
        |(break_dnssec, exclude, nodata_only, group, domain)| {
            let exclude = if exclude { "exclude = ['::/0']" } else { "" };
            let mode = if nodata_only {
                "[[forward]]\ndomain = 'example'\nmode = 'nodata-only'"
            } else {
                ""
            };
            let prefixes =
                "prefixes = [{ prefix = '2001:db8:64::/96' }, { prefix = '2001:db8:96::/64' }]";
            let filter_a = group;
            let group = if group {
                format!("[[group]]\nclients = ['127.0.0.0/8']\ndns64 = {{ {prefixes} }}")
            } else {
                String::new()
            };
            settings(
                &format!("break-dnssec = {break_dnssec}\n{exclude}\nfilter-a = {filter_a}\nhttps-hints = 'translate'"),
                &format!("{mode}\n{domain}\n{group}"),
            )
        },
    )
}

/// A `[[domain]]` table for `host.example` with one setting, or an empty text.
fn domain_keys() -> impl Strategy<Value = String> {
    let keys = prop_oneof![
        Just("off = true"),
        Just("prefixes = [{ prefix = '2001:db8:77::/56' }]"),
        Just("ignore-aaaa = true"),
        Just("ignore-aaaa = true\nfallback-native = true"),
        Just("mode = 'timeout'"),
    ];
    let table = |keys| format!("[[domain]]\ndomain = 'host.example'\n{keys}\n");
    prop_oneof![Just(String::new()), keys.prop_map(table)]
}

/// The keys of `ipv4hint` and `ipv6hint` (RFC 9460 §14.3.2).
const HINTS: [u8; 2] = [4, 6];

/// An answer for a name with these IPv4 addresses, in A records and in the hints of an HTTPS
/// record. The name has no AAAA records.
fn reply_with_hints(addresses: &[Ipv4Addr], question: &[u8]) -> Vec<u8> {
    let (wire, rest) = question.split_at(question.len() - 4);
    let asked = Name::from_octets(wire.to_vec()).unwrap();
    let qtype = Rtype::from_int(u16::from_be_bytes([rest[0], rest[1]]));
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_qr(true);
    let mut question = builder.question();
    question.push((&asked, qtype, Class::IN)).unwrap();
    let mut answer = question.answer();
    let ttl = Ttl::from_secs(60);
    match qtype {
        Rtype::A => addresses.iter().for_each(|&a| answer.push((&asked, ttl, A::new(a))).unwrap()),
        Rtype::HTTPS => {
            // Priority 1, target ".", one parameter.
            let mut data = vec![0, 1, 0, 0, HINTS[0], 0, 4 * addresses.len() as u8];
            addresses.iter().for_each(|address| data.extend(address.octets()));
            let data = UnknownRecordData::from_octets(qtype, data).unwrap();
            answer.push((&asked, ttl, data)).unwrap();
        }
        _ => {}
    }
    answer.finish()
}

/// The IPv6 addresses in the AAAA records of a reply, or in the `ipv6hint` of its HTTPS record.
fn ipv6_addresses(reply: &[u8]) -> Vec<Ipv6Addr> {
    let message = Message::from_octets(reply).unwrap();
    let records = message.answer().unwrap().limit_to::<UnknownRecordData<_>>();
    let mut addresses = Vec::new();
    for record in records {
        let record = record.unwrap();
        let data: &[u8] = record.data().data();
        let octets = match record.rtype() {
            Rtype::AAAA => data,
            // Priority, target, and key and length of the only parameter.
            Rtype::HTTPS if data[4] == HINTS[1] => &data[7..],
            _ => continue,
        };
        addresses.extend(
            octets.chunks(16).map(|one| Ipv6Addr::from(<[u8; 16]>::try_from(one).unwrap())),
        );
    }
    addresses
}

/// The number of records of a type in a reply. Zero for an error response.
fn count(reply: &[u8], qtype: Rtype) -> usize {
    let message = Message::from_octets(reply).unwrap();
    if message.header().rcode() != Rcode::NOERROR {
        return 0;
    }
    let section = message.answer().unwrap();
    section.filter(|record| record.as_ref().is_ok_and(|record| record.rtype() == qtype)).count()
}

proptest! {
    /// Item 46: if A records are withheld from a client, the client gets AAAA records. Otherwise
    /// the client gets the A records unchanged.
    #[test]
    fn filter_a_leaves_every_client_an_address(
        aaaa in said(), a in said(), domain in domain_keys(), dnssec_ok: bool, off: bool,
        silent in prop::sample::subsequence(vec![1u8, 28], 0..2),
    ) {
        let ask = |question: &[u8]| {
            let qtype = question[question.len() - 3];
            let said = if qtype == 28 { &aaaa } else { &a };
            (!silent.contains(&qtype)).then(|| reply_of(said, question))
        };
        let prefixes = if off { "prefixes = []" } else { "" };
        let domain = if off { "" } else { &domain };
        let of = |filter_a: bool, qtype| {
            let settings = settings(&format!("{prefixes}\nfilter-a = {filter_a}"), domain);
            walk(&settings, &query(qtype, Some(1232), dnssec_ok), Transport::Tcp, ask).unwrap()
        };
        let had = count(&of(false, Rtype::A), Rtype::A);
        let has = count(&of(true, Rtype::A), Rtype::A);
        let aaaa = of(true, Rtype::AAAA);
        prop_assert_eq!(&aaaa, &of(false, Rtype::AAAA), "AAAA records are as ever");
        let given = count(&aaaa, Rtype::AAAA);
        prop_assert!(has == had || (has == 0 && given > 0), "{had} A records before, {has} now, {given} AAAA");
        prop_assert!(given == 0 || has == 0, "{has} A records beside {given} AAAA records");
    }

    /// Item 45: hints and addresses of a name have the same prefixes.
    #[test]
    fn hints_and_addresses_of_a_name_are_the_same(
        addresses in prop::collection::btree_set(any::<u32>(), 1..6), domain in domain_keys(), draining: bool,
        select in prop_oneof![Just("all"), Just("first"), Just("spread")], client: u32,
    ) {
        let addresses: Vec<Ipv4Addr> = addresses.into_iter().map(Ipv4Addr::from).collect();
        let prefixes = format!(
            "prefixes = [{{ prefix = '2001:db8:1::/96', draining = {draining} }}, {{ prefix = '2001:db8:2::/64' }}, \
             {{ prefix = '64:ff9b::/96' }}]"
        );
        let settings = settings(&format!("{prefixes}\nselect = '{select}'\nhttps-hints = 'translate'"), &domain);
        let (cache, cookies) = (Cache::new(0), Cookies::new());
        let walk = Walk { settings: &settings, cache: &cache, cookies: &cookies, now: Nanos(0) };
        let client = IpAddr::V4(Ipv4Addr::from(client >> 8 | 127 << 24));
        let of = |qtype| {
            let ask = |key: &KeyBuf| Some(reply_with_hints(&addresses, key.question()));
            ipv6_addresses(&walk.reply(&query(qtype, None, false), client, Transport::Tcp, ask).unwrap())
        };
        let given = of(Rtype::AAAA);
        prop_assert_eq!(&of(Rtype::HTTPS), &given);
        prop_assert_eq!(given.is_empty(), domain.contains("off"));
    }

    /// Item 45: the policy of a group changes no answer for clients of other groups.
    #[test]
    fn a_group_changes_nothing_for_others(
        said in said(), domain in domain_keys(), filter_a: bool, hints in prop_oneof![Just("strip"), Just("translate")],
    ) {
        let ask = |question: &[u8]| Some(reply_of(&said, question));
        let domain = domain.replace("[[domain]]", "[[group.domain]]");
        let group = format!("[[group]]\nclients = ['192.0.2.0/24']\nfilter-a = {filter_a}\nhttps-hints = '{hints}'\n{domain}");
        for qtype in [Rtype::AAAA, Rtype::A, Rtype::HTTPS] {
            let of = |more: &str| walk(&settings("", more), &query(qtype, None, false), Transport::Tcp, ask);
            prop_assert_eq!(of(&group), of(""));
        }
    }

    #[test]
    fn any_client_bytes_get_a_small_reply_or_none(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Some(reply) = walk(&settings("", ""), &bytes, Transport::Udp, |_| None) {
            check(&reply, 1232)?;
        }
    }

    #[test]
    fn damaged_queries_get_a_small_reply_or_none(at in 0usize..60, value: u8, cut in 0usize..60, size in 0u16..5000) {
        let mut bytes = query(Rtype::AAAA, Some(size), true);
        let at = at % bytes.len();
        bytes[at] = value;
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        let ask = |question: &[u8]| {
            Some(reply_of(&Said { rcode: 0, aliases: 1, addresses: 100, aaaa_too: false, ttl: 60 }, question))
        };
        if let Some(reply) = walk(&settings("", ""), &bytes, Transport::Udp, ask) {
            check(&reply, 1232)?;
        }
    }

    #[test]
    fn any_upstream_bytes_make_a_fitting_reply(
        said in said(), noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        edns in prop::option::of(0u16..5000), dnssec_ok: bool, settings in any_settings(), cut in 0usize..40,
        silent in prop::sample::subsequence(vec![1u8, 28], 0..2),
    ) {
        let limit = edns.map_or(512, |size| usize::from(size).clamp(512, 1232));
        let ask = |question: &[u8]| {
            let mut bytes = reply_of(&said, question);
            for (at, value) in &noise {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            if silent.contains(&question[question.len() - 3]) {
                return None;
            }
            let cut = if noise.is_empty() { 0 } else { cut };
            bytes.truncate(bytes.len().saturating_sub(cut));
            Some(bytes)
        };
        for qtype in [Rtype::AAAA, Rtype::A, Rtype::TXT, Rtype::ANY] {
            let reply = walk(&settings, &query(qtype, edns, dnssec_ok), Transport::Udp, ask).unwrap();
            check(&reply, limit)?;
            check(&walk(&settings, &query(qtype, edns, dnssec_ok), Transport::Tcp, ask).unwrap(), 65_535)?;
        }
    }

    /// A synthesized answer has one AAAA record for each A record, in order, with the address
    /// embedded in the prefix. It has no other AAAA records (RFC 6147 §5.1.7).
    #[test]
    fn synthesis_embeds_every_address(addresses in 1u8..130, aliases in 0u8..8) {
        // The A query is for the end of the alias chain.
        let ask = |question: &[u8]| {
            let aliases = if question.starts_with(b"\x04host") { aliases } else { 0 };
            Some(reply_of(&Said { rcode: 0, aliases, addresses, aaaa_too: false, ttl: 60 }, question))
        };
        let reply = walk(&settings("", ""), &query(Rtype::AAAA, None, false), Transport::Tcp, ask).unwrap();
        let message = Message::from_octets(&reply[..]).unwrap();
        let made: Vec<Ipv6Addr> = message.answer().unwrap().limit_to::<Aaaa>().map(|r| r.unwrap().data().addr()).collect();
        let embedded: Vec<_> = made.iter().map(|&a| Prefix::WELL_KNOWN.extract(a)).collect();
        let expected: Vec<_> = (0..addresses).map(|n| Some(Ipv4Addr::new(8, 8, 4, n))).collect();
        prop_assert_eq!(embedded, expected);
    }

    /// A cached answer causes no further upstream query and the same reply. Replies from the cache
    /// are never too long.
    #[test]
    fn a_second_query_is_answered_from_the_cache(said in said(), settings in any_settings(), later in 0u64..100_000) {
        let (cache, cookies) = (Cache::new(1), Cookies::new());
        let asked = AtomicUsize::new(0);
        let ask = |key: &KeyBuf| {
            asked.fetch_add(1, Ordering::Relaxed);
            Some(reply_of(&said, key.question()))
        };
        let bytes = query(Rtype::AAAA, None, false);
        let mut walk = Walk { settings: &settings, cache: &cache, cookies: &cookies, now: Nanos(0) };
        let first = walk.reply(&bytes, CLIENT, Transport::Udp, ask).unwrap();
        let needed = asked.swap(0, Ordering::Relaxed);
        let second = walk.reply(&bytes, CLIENT, Transport::Udp, ask).unwrap();
        // Data without a TTL are queried again.
        prop_assert!(asked.swap(0, Ordering::Relaxed) <= needed);
        prop_assert_eq!(&first, &second);
        walk.now = Nanos(Nanos::SECOND.0 * later);
        let third = walk.reply(&bytes, CLIENT, Transport::Udp, ask).unwrap();
        check(&third, 512)?;
        prop_assert_eq!(View::new(&first).unwrap().rcode(), View::new(&third).unwrap().rcode());
    }
}
