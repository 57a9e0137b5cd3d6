//! Validation of replies. The address format of RFC 6052 and the rule for the expected addresses are implemented here
//! independently of any DNS64 server.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use method::records::Wrong;
use serde::{Deserialize, Serialize};
use units::Share;
use wire::edns::Opt;
use wire::name::{has_aaaa, native_aaaa};
use wire::rcode::Rcode;
use wire::template::{HEADER_LEN, QueryTemplate};
use wire::view::{CLASS_IN, Malformed, Message, rtype};

/// Maximum number of aliases followed in an answer. RFC 6147 leaves the limit to implementations, and resolvers use 8
/// to 16.
const MAX_ALIASES: usize = 16;

/// A Pref64::/n (RFC 6052 §2.2) of 32, 40, 48, 56, 64 or 96 bits. Bits 64 to 71 are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    bits: u128,
    len: u8,
}

impl Prefix {
    /// Returns the prefix length: 32, 40, 48, 56, 64 or 96 bits.
    pub fn length(&self) -> u8 {
        self.len
    }

    /// Returns the address that represents `address` under this prefix (RFC 6052 §2.2). The suffix is zero.
    pub fn embed(&self, address: Ipv4Addr) -> Ipv6Addr {
        let behind = u128::from(u32::from(address)) << (96 - self.len);
        // Octet 8 (bits 64 to 71) stays zero, so all bits from bit 64 on move down by eight.
        let lower = u128::from(u64::MAX);
        let embedded =
            if self.len == 96 { behind } else { (behind & !lower) | ((behind & lower) >> 8) };
        Ipv6Addr::from(self.bits | embedded)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(s: &str) -> Result<Self, PrefixError> {
        let bad = |why| PrefixError { given: s.into(), why };
        let (address, len) =
            s.split_once('/').ok_or_else(|| bad("the prefix length is missing"))?;
        let bits = u128::from(
            address.parse::<Ipv6Addr>().map_err(|_| bad("the address is not an IPv6 address"))?,
        );
        let len = len.parse().map_err(|_| bad("the length is not a number"))?;
        if ![32, 40, 48, 56, 64, 96].contains(&len) {
            return Err(bad("RFC 6052 §2.2 allows the lengths 32, 40, 48, 56, 64 and 96 only"));
        }
        if bits & (u128::MAX >> len) != 0 {
            return Err(bad("the address has bits set beyond the prefix length"));
        }
        if bits & (0xff << 56) != 0 {
            return Err(bad("bits 64 to 71 must be zero (RFC 6052 §2.2)"));
        }
        Ok(Prefix { bits, len })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv6Addr::from(self.bits), self.len)
    }
}

impl TryFrom<String> for Prefix {
    type Error = PrefixError;
    fn try_from(s: String) -> Result<Self, PrefixError> {
        s.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> String {
        prefix.to_string()
    }
}

/// Text that is not a DNS64 prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not a DNS64 prefix: {why}; write for example 64:ff9b::/96")]
pub struct PrefixError {
    given: String,
    why: &'static str,
}

/// Required contents of a trial's replies.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// Share of the queried names that have a native AAAA record.
    pub aaaa_share: Share,
    /// True if the address of a native AAAA record is checked.
    pub check_own_aaaa: bool,
    /// DNS64 prefixes. The address of a name without a native AAAA record must be synthesized with one of these
    /// prefixes. If there are none, any address is accepted.
    pub prefixes: Vec<Prefix>,
}

impl Expectation {
    fn allows(&self, name: Ipv4Addr, given: Ipv6Addr) -> bool {
        if has_aaaa(name, self.aaaa_share) {
            !self.check_own_aaaa || given == native_aaaa(name)
        } else {
            self.prefixes.is_empty()
                || self.prefixes.iter().any(|prefix| prefix.embed(name) == given)
        }
    }

    /// Checks a reply that matches the query for `name` in id, source and question. `answers_at` is the offset after
    /// the question.
    ///
    /// # Errors
    /// Returns the first fault in this order: an opcode other than QUERY, an RCODE other than NOERROR, truncation, a
    /// malformed record, and a wrong or missing address.
    #[inline]
    pub fn judge(
        &self,
        message: &Message<'_>,
        answers_at: usize,
        name: Ipv4Addr,
    ) -> Result<(), Wrong> {
        if message.opcode() != 0 {
            return Err(Wrong::Malformed);
        }
        if message.rcode() != Rcode::NOERROR {
            return Err(wrong_rcode(message, answers_at));
        }
        if message.is_truncated() {
            return Err(Wrong::Truncated);
        }
        judge_form(message, answers_at)?;
        self.judge_answers(message, answers_at, name).unwrap_or(Err(Wrong::Malformed))
    }

    fn judge_answers(
        &self,
        message: &Message<'_>,
        at: usize,
        name: Ipv4Addr,
    ) -> Result<Result<(), Wrong>, Malformed> {
        let owner = end_of_aliases(message, at)?;
        let mut found = false;
        for record in message.records(at, message.ancount()) {
            let record = record?;
            if record.rtype != rtype::AAAA
                || record.class != CLASS_IN
                || !message.same_name(record.owner, owner)?
            {
                continue;
            }
            let address: [u8; 16] = record.data.try_into().map_err(|_| Malformed)?;
            if !self.allows(name, Ipv6Addr::from(address)) {
                return Ok(Err(Wrong::Address));
            }
            found = true;
        }
        Ok(if found { Ok(()) } else { Err(Wrong::NoAaaa) })
    }
}

/// Checks the format of a reply's records, starting with the answer section at offset `at`. Each record must parse, the
/// OPT record must not contain upper bits of an RCODE (RFC 6891 §6.1.3), and no octets may follow the last record.
///
/// # Errors
/// Returns the RCODE as a fault if the OPT record contains upper bits, and [`Wrong::Malformed`] for other faults.
#[inline]
pub(crate) fn judge_form(message: &Message<'_>, at: usize) -> Result<(), Wrong> {
    let mut records = message.all_records(at);
    for record in records.by_ref() {
        let record = record.map_err(|Malformed| Wrong::Malformed)?;
        if record.rtype == rtype::OPT && record.ttl >> 24 != 0 {
            return Err(wrong_rcode(message, at));
        }
    }
    if records.offset() == message.octets() { Ok(()) } else { Err(Wrong::Malformed) }
}

/// Returns the RCODE of a reply as a fault; the answer section begins at the offset `at`.
#[cold]
pub(crate) fn wrong_rcode(message: &Message<'_>, at: usize) -> Wrong {
    Wrong::Rcode(whole_rcode(message, at).in_octet())
}

/// Returns the RCODE of a reply, including the upper bits in the OPT record if that record can be parsed. The answer
/// section begins at the offset `at`.
#[cold]
pub(crate) fn whole_rcode(message: &Message<'_>, at: usize) -> Rcode {
    let opt =
        message.all_records(at).map_while(Result::ok).find_map(|record| Opt::from_record(&record));
    message.rcode().extended(opt.map_or(0, |opt| opt.rcode_bits))
}

/// Returns the offset of the answer section in a reply with the ID of a query for `name`. Returns `None` if the reply
/// does not answer this query.
#[inline]
pub(crate) fn answers_at(
    message: &Message<'_>,
    bytes: &[u8],
    asked: &QueryTemplate,
    name: Ipv4Addr,
) -> Option<usize> {
    match message.qdcount() {
        1 if asked.is_question_of(bytes, name) => Some(asked.len()),
        // A server that did not parse the query may omit the question from an error reply.
        0 if whole_rcode(message, HEADER_LEN) != Rcode::NOERROR => Some(HEADER_LEN),
        _ => None,
    }
}

/// Returns the address of the first AAAA record in the answer section, which begins at offset `at`.
pub(crate) fn first_aaaa(message: &Message<'_>, at: usize) -> Option<Ipv6Addr> {
    let answers = message.records(at, message.ancount()).map_while(Result::ok);
    let octets = |data: &[u8]| <[u8; 16]>::try_from(data).ok();
    answers
        .filter(|record| record.rtype == rtype::AAAA)
        .find_map(|record| octets(record.data))
        .map(Ipv6Addr::from)
}

/// Returns the offset of the name at the end of the CNAME chain that begins at the question (RFC 6147 §5.1.5). The
/// chain's records may be in any order. Loops and chains longer than [`MAX_ALIASES`] are malformed.
fn end_of_aliases(message: &Message<'_>, at: usize) -> Result<usize, Malformed> {
    let mut owner = HEADER_LEN;
    for _ in 0..=MAX_ALIASES {
        let mut alias = None;
        for record in message.records(at, message.ancount()) {
            let record = record?;
            if record.rtype == rtype::CNAME
                && record.class == CLASS_IN
                && message.same_name(record.owner, owner)?
            {
                alias = Some(record.data_at);
                break;
            }
        }
        match alias {
            Some(target) => owner = target,
            None => return Ok(owner),
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::iana::{Class, Rcode, Rtype};
    use domain::base::message_builder::AnswerBuilder;
    use domain::base::{MessageBuilder, Name, Ttl};
    use domain::rdata::{A, Aaaa, Cname};
    use proptest::prelude::*;
    use wire::edns::put_opt;
    use wire::name::Domain;

    const NAME: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    #[test]
    fn rfc_6052_section_2_4_vectors() {
        let v4 = Ipv4Addr::new(192, 0, 2, 33);
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let prefix: Prefix = prefix.parse().unwrap();
            assert_eq!(prefix.embed(v4), address.parse::<Ipv6Addr>().unwrap(), "{prefix}");
            assert!(prefix.to_string().ends_with(&format!("/{}", prefix.length())), "{prefix}");
        }
    }

    #[test]
    fn prefixes_outside_rfc_6052_are_rejected() {
        for bad in [
            "64:ff9b::",
            "64:ff9b::/72",
            "64:ff9b::1/96",
            "2001:db8:0:0:100::/96",
            "10.0.0.0/32",
            "::/x",
        ] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad} was accepted");
        }
    }

    fn name(s: &str) -> Name<Vec<u8>> {
        s.parse().unwrap()
    }

    fn reply(rcode: Rcode, records: impl FnOnce(&mut AnswerBuilder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_qr(true);
        builder.header_mut().set_rcode(rcode);
        let mut question = builder.question();
        question.push((name(&Domain::dns64perf().name_of(NAME)), Rtype::AAAA, Class::IN)).unwrap();
        let mut answer = question.answer();
        records(&mut answer);
        answer.finish()
    }

    fn aaaa(builder: &mut AnswerBuilder<Vec<u8>>, owner: &str, address: &str) {
        builder
            .push((name(owner), Ttl::from_secs(1), Aaaa::new(address.parse().unwrap())))
            .unwrap();
    }

    fn cname(builder: &mut AnswerBuilder<Vec<u8>>, owner: &str, target: &str) {
        builder.push((name(owner), Ttl::from_secs(1), Cname::new(name(target)))).unwrap();
    }

    fn judge_with(bytes: &[u8], aaaa_share: Share, prefixes: &[&str]) -> Result<(), Wrong> {
        let prefixes = prefixes.iter().map(|p| p.parse().unwrap()).collect();
        let message = Message::new(bytes).unwrap();
        Expectation { aaaa_share, check_own_aaaa: true, prefixes }.judge(&message, 48, NAME)
    }

    fn judge(bytes: &[u8]) -> Result<(), Wrong> {
        judge_with(bytes, Share::ZERO, &["64:ff9b::/96"])
    }

    const Q: &str = "010-000-000-001.dns64perf.test";

    #[test]
    fn right_answers() {
        assert_eq!(judge(&reply(Rcode::NOERROR, |b| aaaa(b, Q, "64:ff9b::a00:1"))), Ok(()));
        let any = reply(Rcode::NOERROR, |b| aaaa(b, Q, "2001:db8::1"));
        assert_eq!(judge_with(&any, Share::ZERO, &[]), Ok(()));
        let both = reply(Rcode::NOERROR, |b| {
            aaaa(b, Q, "64:ff9b::a00:1");
            aaaa(b, Q, "2001:db8:64::a00:1");
        });
        assert_eq!(judge_with(&both, Share::ZERO, &["64:ff9b::/96", "2001:db8:64::/96"]), Ok(()));
        let own = reply(Rcode::NOERROR, |b| aaaa(b, Q, &native_aaaa(NAME).to_string()));
        assert_eq!(judge_with(&own, Share::ONE, &["64:ff9b::/96"]), Ok(()));
    }

    #[test]
    fn a_reply_repeats_the_question_or_is_an_error_without_one() {
        let asked = QueryTemplate::aaaa(&Domain::dns64perf());
        let at =
            |bytes: &[u8], name| answers_at(&Message::new(bytes).unwrap(), bytes, &asked, name);
        let right = reply(Rcode::NOERROR, |_| ());
        assert_eq!(at(&right, NAME), Some(asked.len()));
        assert_eq!(at(&right, Ipv4Addr::new(10, 0, 0, 2)), None);
        let bare = |rcode| {
            let mut bytes = reply(rcode, |_| ());
            bytes.truncate(HEADER_LEN);
            bytes[5] = 0;
            bytes
        };
        assert_eq!(at(&bare(Rcode::FORMERR), NAME), Some(HEADER_LEN));
        assert_eq!(at(&bare(Rcode::NOERROR), NAME), None);
        let mut bad_version = bare(Rcode::NOERROR);
        add_opt(&mut bad_version, wire::rcode::Rcode::BADVERS, &[]);
        assert_eq!(at(&bad_version, NAME), Some(HEADER_LEN));
    }

    #[test]
    fn aliases_are_followed_in_any_order_and_case() {
        let chain = reply(Rcode::NOERROR, |b| {
            aaaa(b, "end.test", "64:ff9b::a00:1");
            cname(b, "Middle.test", "END.test");
            cname(b, Q, "middle.TEST");
        });
        assert_eq!(judge(&chain), Ok(()));
        let beside = reply(Rcode::NOERROR, |b| {
            cname(b, Q, "other.test");
            aaaa(b, Q, "64:ff9b::a00:1");
        });
        assert_eq!(judge(&beside), Err(Wrong::NoAaaa));
        let ring = reply(Rcode::NOERROR, |b| {
            cname(b, Q, "a.test");
            cname(b, "a.test", Q);
            aaaa(b, Q, "64:ff9b::a00:1");
        });
        assert_eq!(judge(&ring), Err(Wrong::Malformed));
    }

    #[test]
    fn wrong_answers() {
        assert_eq!(judge(&reply(Rcode::SERVFAIL, |_| ())), Err(Wrong::Rcode(2)));
        assert_eq!(judge(&reply(Rcode::NOERROR, |_| ())), Err(Wrong::NoAaaa));
        assert_eq!(
            judge(&reply(Rcode::NOERROR, |b| aaaa(b, "else.test", "64:ff9b::a00:1"))),
            Err(Wrong::NoAaaa)
        );
        assert_eq!(
            judge(&reply(Rcode::NOERROR, |b| aaaa(b, Q, "64:ff9b::a00:2"))),
            Err(Wrong::Address)
        );
        let only_a =
            reply(Rcode::NOERROR, |b| b.push((name(Q), Ttl::from_secs(1), A::new(NAME))).unwrap());
        assert_eq!(judge(&only_a), Err(Wrong::NoAaaa));
        let mixed = reply(Rcode::NOERROR, |b| {
            aaaa(b, Q, "64:ff9b::a00:1");
            aaaa(b, Q, "64:ff9b::bad");
        });
        assert_eq!(judge(&mixed), Err(Wrong::Address));
        // A name with a native record must not be synthesized.
        let synthesized = reply(Rcode::NOERROR, |b| aaaa(b, Q, "64:ff9b::a00:1"));
        assert_eq!(judge_with(&synthesized, Share::ONE, &["64:ff9b::/96"]), Err(Wrong::Address));
    }

    /// Appends an OPT record.
    fn add_opt(reply: &mut Vec<u8>, rcode: wire::rcode::Rcode, options: &[u8]) {
        put_opt(reply, 1232, rcode, false, options);
        reply[11] += 1;
    }

    /// The upper bits of the RCODE are in the OPT record (RFC 6891 §6.1.3).
    #[test]
    fn the_rcode_has_bits_in_opt() {
        let with_opt = |header: Rcode, code: u16| {
            let mut bytes = reply(header, |b| aaaa(b, Q, "64:ff9b::a00:1"));
            add_opt(&mut bytes, wire::rcode::Rcode::new(code), &[0, 10, 0, 1, 7]);
            bytes
        };
        assert_eq!(judge(&with_opt(Rcode::NOERROR, 0)), Ok(()));
        assert_eq!(judge(&with_opt(Rcode::NOERROR, 16)), Err(Wrong::Rcode(16)), "BADVERS");
        assert_eq!(judge(&with_opt(Rcode::YXRRSET, 23)), Err(Wrong::Rcode(23)), "BADCOOKIE");
        assert_eq!(judge(&with_opt(Rcode::SERVFAIL, 2)), Err(Wrong::Rcode(2)));
        assert_eq!(judge(&with_opt(Rcode::NOERROR, 0xff0)), Err(Wrong::Rcode(255)));
    }

    #[test]
    fn octets_after_the_last_record_are_malformed() {
        let mut bytes = reply(Rcode::NOERROR, |b| aaaa(b, Q, "64:ff9b::a00:1"));
        assert_eq!(judge(&[&bytes[..], &[0]].concat()), Err(Wrong::Malformed));
        add_opt(&mut bytes, wire::rcode::Rcode::NOERROR, &[]);
        assert_eq!(judge(&bytes), Ok(()));
        assert_eq!(judge(&[&bytes[..], &[0; 40]].concat()), Err(Wrong::Malformed));
    }

    #[test]
    fn damaged_replies() {
        let mut truncated = reply(Rcode::NOERROR, |b| aaaa(b, Q, "64:ff9b::a00:1"));
        truncated[2] |= 0x02;
        assert_eq!(judge(&truncated), Err(Wrong::Truncated));
        let mut notify = reply(Rcode::NOERROR, |b| aaaa(b, Q, "64:ff9b::a00:1"));
        notify[2] |= 0x20;
        assert_eq!(judge(&notify), Err(Wrong::Malformed));
        let whole = reply(Rcode::NOERROR, |b| aaaa(b, Q, "64:ff9b::a00:1"));
        assert_eq!(judge(&whole[..whole.len() - 1]), Err(Wrong::Malformed));
        let mut counts = whole;
        counts[9] = 1;
        assert_eq!(
            judge(&counts),
            Err(Wrong::Malformed),
            "an authority record is announced and missing"
        );
    }

    proptest! {
        #[test]
        fn no_reply_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 12..200), at in 0usize..64) {
            if let Some(message) = Message::new(&bytes) {
                let _ = Expectation { aaaa_share: Share::percent(50), check_own_aaaa: true, prefixes: vec![] }.judge(&message, at, NAME);
            }
        }

        #[test]
        fn embedding_keeps_every_bit(address: u32, len in prop::sample::select(vec![32u8, 40, 48, 56, 64, 96])) {
            let prefix = Prefix { bits: 0, len };
            let embedded = u128::from(prefix.embed(Ipv4Addr::from(address)));
            prop_assert_eq!(embedded.count_ones(), address.count_ones());
            prop_assert_eq!(embedded & (0xff << 56), 0);
        }
    }
}
