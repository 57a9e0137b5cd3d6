//! Whatever upstreams answer to the AAAA and the A question, the reply is well-formed and no longer than the client allows.
#![no_main]

use dns64::transport::Transport;
use dns64bench_fuzz::{CLIENT, Server, assert_well_formed};
use libfuzzer_sys::fuzz_target;

/// AAAA of `host.test`, RD set, without EDNS.
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04host\x04test\0\0\x1c\0\x01";
/// Header and question of an answer, which get the fuzzer's records behind them.
const HEADER: [u8; 4] = [0, 0, 0x81, 0x80];

fuzz_target!(|said: (u8, [u8; 6], Vec<u8>, [u8; 6], Vec<u8>)| {
    let (rcode, aaaa_counts, aaaa, a_counts, a) = said;
    let mut turn = 0;
    let ask = |key: &dns64::name::KeyBuf| {
        turn += 1;
        let (counts, records) = if turn == 1 { (aaaa_counts, &aaaa) } else { (a_counts, &a) };
        let mut message = HEADER.to_vec();
        message[3] |= rcode & 15;
        message.extend([0, 1]);
        // The upper octets of the counts stay zero: more records than octets say nothing new.
        message.extend([0, counts[0], 0, counts[2], 0, counts[4]]);
        message.extend(key.question());
        message.extend(records);
        Some(message)
    };
    let server = Server::new(0, false);
    let reply = server.at(0).reply(QUERY, CLIENT, Transport::Udp, ask).expect("a query gets a reply");
    assert!(reply.len() <= 512);
    assert_well_formed(&reply);
});
