//! A query and its reply as lines of text, in a format similar to that of `dig`.

use std::fmt::Write;
use std::net::SocketAddr;

use domain::base::ParsedName;
use domain::base::iana::Opcode;
use domain::base::rdata::ParseAnyRecordData;
use domain::dep::octseq::Parser;
use domain::rdata::AllRecordData;
use domain::utils::base16;

use crate::message::{Message, Name, Record};
use crate::outcome::Shown;
use crate::trial::{Exchange, by_hand, rcode_name};

/// Maximum number of records shown per section.
const RECORDS: usize = 12;

/// EDNS option code of an extended error (RFC 8914 §2).
const EXTENDED_ERROR: u16 = 15;

/// Formats a query and its reply as text.
pub(crate) fn exchange(server: SocketAddr, exchange: &Exchange) -> Shown {
    let micros = exchange.took.as_micros() as f64;
    Shown {
        dig: by_hand(server, exchange),
        reply: match (&exchange.reply, &exchange.unreadable) {
            (Some(message), _) => reply(message),
            (None, Some(why)) => format!("no DNS message: {why}"),
            (None, None) => "no reply".into(),
        },
        took_ms: micros / 1000.0,
    }
}

/// Formats a reply as lines for the header, the OPT record, the question and the records.
fn reply(message: &Message) -> String {
    let mut out = header(message);
    if let Some(question) = message.question() {
        let _ = write!(out, "\n;{} {} {}", dotted(&question.name), question.class, question.qtype);
    } else {
        let _ = write!(out, "\n; {} questions", message.questions.len());
    }
    for (title, records) in [
        ("answer", &message.answer),
        ("authority", &message.authority),
        ("additional", &message.additional),
    ] {
        section(&mut out, title, records);
    }
    out
}

fn header(message: &Message) -> String {
    let mut out = format!("{}, id {}, flags", rcode_name(message.rcode), message.id);
    let flags = message.flags;
    for (set, name) in [
        (flags.qr, "qr"),
        (flags.aa, "aa"),
        (flags.tc, "tc"),
        (flags.rd, "rd"),
        (flags.ra, "ra"),
        (flags.ad, "ad"),
        (flags.cd, "cd"),
    ] {
        if set {
            let _ = write!(out, " {name}");
        }
    }
    if message.opcode != 0 {
        let _ = write!(out, ", opcode {}", Opcode::from_int(message.opcode));
    }
    match &message.edns {
        None => out.push_str(", no EDNS"),
        Some(edns) => {
            let dnssec_ok = if edns.dnssec_ok { ", DO" } else { "" };
            let _ = write!(out, ", EDNS {}{dnssec_ok}, UDP {}", edns.version, edns.payload);
            for (code, content) in &edns.options {
                match (*code, content.as_slice()) {
                    (EXTENDED_ERROR, [high, low, ..]) => {
                        let _ = write!(out, ", EDE {}", u16::from_be_bytes([*high, *low]));
                    }
                    _ => {
                        let _ = write!(out, ", option {code}");
                    }
                }
            }
        }
    }
    if message.opt_records > 1 {
        let _ = write!(out, ", {} OPT records", message.opt_records);
    }
    out
}

fn section(out: &mut String, title: &str, records: &[Record]) {
    for (n, record) in records.iter().take(RECORDS).enumerate() {
        if n == 0 {
            let _ = write!(out, "\n;; {title}");
        }
        let (owner, data) = (dotted(&record.owner), data(record));
        let _ = write!(out, "\n{owner} {} {} {} {data}", record.ttl, record.class, record.rtype);
    }
    if records.len() > RECORDS {
        let _ = write!(out, "\n; and {} more", records.len() - RECORDS);
    }
}

fn dotted(name: &Name) -> String {
    name.fmt_with_dot().to_string()
}

/// Formats RDATA as in a zone file. Data that cannot be parsed is written in the format for unknown types (RFC 3597
/// §5).
fn data(record: &Record) -> String {
    type Data<'a> = AllRecordData<&'a [u8], ParsedName<&'a [u8]>>;
    if let Some(target) = record.target() {
        return dotted(&target);
    }
    let mut parser = Parser::from_ref(record.data.as_slice());
    match Data::parse_any_rdata(record.rtype, &mut parser) {
        Ok(data) if parser.remaining() == 0 => data.to_string(),
        _ => format!("\\# {} {}", record.data.len(), base16::encode_display(&record.data)),
    }
}

#[cfg(test)]
mod tests {
    use domain::base::iana::Rtype;

    use super::*;
    use crate::message::{Flags, name, rcode};

    #[test]
    fn queries_beyond_dig_are_repeated_as_octets() {
        let server = "[2001:2::1]:53".parse().unwrap();
        let sent = crate::trial::Sent::Octets(vec![0, 0x1f, 0xc0]);
        let silent = Exchange {
            sent,
            tcp: false,
            reply: None,
            unreadable: None,
            took: std::time::Duration::from_millis(2),
        };
        let shown = exchange(server, &silent);
        assert_eq!(shown.dig, "echo 001FC0 | xxd -r -p | nc -u -w 2 2001:2::1 53 | xxd");
        assert_eq!(shown.reply, "no reply");
    }

    #[test]
    fn a_reply_is_read_like_that_of_dig() {
        let owner = name("x1.v4-1-2-3-4.conform.example");
        let mut message = Message::query(&owner, Rtype::AAAA).response();
        message.id = 7;
        message.rcode = rcode::BADVERS;
        message.flags = Flags { ra: true, tc: true, ..message.flags };
        message.answer.push(Record::pointing(owner.clone(), Rtype::CNAME, 60, &name("b.example")));
        for n in 0..14 {
            let address = std::net::Ipv6Addr::from(0x64_ff9b << 96 | n);
            message.answer.push(Record::aaaa(owner.clone(), 300, address));
        }
        message.authority.push(Record::soa(&name("conform.example"), 300, 60));
        message.additional.push(Record::new(owner, Rtype::from_int(65_280), 1, vec![1, 255]));
        if let Some(edns) = &mut message.edns {
            edns.options = vec![(EXTENDED_ERROR, vec![0, 29]), (10, vec![])];
        }
        let text = reply(&message);
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("BADVERS, id 7, flags qr tc rd ra, EDNS 0, UDP 1232, EDE 29, option 10")
        );
        assert_eq!(lines.next(), Some(";x1.v4-1-2-3-4.conform.example. IN AAAA"));
        assert_eq!(lines.next(), Some(";; answer"));
        assert_eq!(lines.next(), Some("x1.v4-1-2-3-4.conform.example. 60 IN CNAME b.example."));
        assert_eq!(lines.next(), Some("x1.v4-1-2-3-4.conform.example. 300 IN AAAA 64:ff9b::"));
        assert!(text.contains("\n; and 3 more\n;; authority\nconform.example. 300 IN SOA ns."));
        assert!(text.ends_with("1 IN TYPE65280 \\# 2 01 ff"), "{text}");
    }
}
