//! Complete inquiries of one client, one after another on one server, with an upstream controlled by the input: it
//! answers, lies, fails or is silent, and time passes in between. Every query gets a well-formed reply with its ID that
//! is not too long, with a bounded number of upstream queries.
#![no_main]

use dns64::{KeyBuf, Transport};
use dns64bench_fuzz::{CLIENT, Script, Server, assert_well_formed};
use libfuzzer_sys::fuzz_target;

/// Three chains of 17 upstream queries, and one query that is sent again with its two probes.
const MOST_QUESTIONS: usize = 3 * 17 + 3;

fuzz_target!(|input: &[u8]| {
    let mut script = Script::new(input);
    let server = Server::new(script.octet(), script.octet() & 1 == 1);
    let mut second = 0;
    for _ in 0..4 {
        let query = script.query();
        let transport = if script.octet() & 1 == 1 { Transport::Tcp } else { Transport::Udp };
        let limit = transport.limit(query.payload.map(usize::from));
        let mut questions = 0;
        let ask = |key: &KeyBuf| {
            questions += 1;
            script.answer(key)
        };
        let reply = server
            .at(second)
            .reply(&query.bytes, CLIENT, transport, ask)
            .expect("a query gets a reply");
        assert!(questions <= MOST_QUESTIONS, "{questions} questions");
        assert!(reply.len() <= limit, "{} octets of {limit}", reply.len());
        assert!(reply[..2] == query.bytes[..2], "another id");
        assert_well_formed(&reply);
        if script.is_empty() {
            return;
        }
        second += u32::from(script.octet()) * 8;
    }
});
