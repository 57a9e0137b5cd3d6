//! Whatever upstreams answer to the AAAA and the A question, the reply is well-formed and no longer than the client allows.
#![no_main]

use dns64::resolver::ttl::TtlLimits;
use dns64::translation::policy::Policy;
use dns64::walk::walk;
use libfuzzer_sys::fuzz_target;
use wire::view::Message;

/// AAAA of `host.test`, RD set, without EDNS.
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04host\x04test\0\0\x1c\0\x01";
/// Header and question of an answer, which get the fuzzer's records behind them.
const HEADER: [u8; 4] = [0, 0, 0x81, 0x80];

fuzz_target!(|said: (u8, [u8; 6], Vec<u8>, [u8; 6], Vec<u8>)| {
    let (rcode, aaaa_counts, aaaa, a_counts, a) = said;
    let mut turn = 0;
    let ask = |question: &[u8]| {
        turn += 1;
        let (counts, records) = if turn == 1 { (aaaa_counts, &aaaa) } else { (a_counts, &a) };
        let mut message = HEADER.to_vec();
        message[3] |= rcode & 15;
        message.extend([0, 1]);
        // The upper octets of the counts stay zero: more records than octets say nothing new.
        message.extend([0, counts[0], 0, counts[2], 0, counts[4]]);
        message.extend(question);
        message.extend(records);
        Some(message)
    };
    let reply = walk(QUERY, false, &Policy::default(), &TtlLimits::default(), ask).expect("a query gets a reply");
    assert!(reply.len() <= 512);
    let message = Message::new(&reply).expect("a header");
    let mut at = 12;
    for _ in 0..message.qdcount() {
        at = message.skip_name(at).expect("our question") + 4;
    }
    let records = message.ancount() + message.nscount() + message.arcount();
    for record in message.records(at, records) {
        record.expect("a well-formed record");
    }
});
