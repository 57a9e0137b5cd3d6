//! For any answers of upstreams to the AAAA and the A query, the reply is well-formed and no longer than the client
//! allows, immediately and from the cache. `dns64bench_fuzz::UpstreamAnswers` has the format of the input.
#![no_main]

use dns64::{KeyBuf, Transport};
use dns64bench_fuzz::{CLIENT, UpstreamAnswers, Server, assert_well_formed};
use libfuzzer_sys::fuzz_target;

/// AAAA of `host.test`, RD set, without EDNS.
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04host\x04test\0\0\x1c\0\x01";

fuzz_target!(|input: &[u8]| {
    let Some(said) = UpstreamAnswers::read(input) else { return };
    let server = Server::new(said.configuration, said.caches);
    // The second time a minute later: from the cache, with rewritten TTLs.
    for second in [0, 60] {
        let mut turn = 0;
        let ask = |key: &KeyBuf| {
            turn += 1;
            Some(said.message(turn > 1, key.question()))
        };
        let reply = server
            .at(second)
            .reply(QUERY, CLIENT, Transport::Udp, ask)
            .expect("a query gets a reply");
        assert!(reply.len() <= 512);
        assert_well_formed(&reply);
    }
});
