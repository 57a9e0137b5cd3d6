//! For any input of a client, dns64d's reply is well-formed and no longer than the client allows.
#![no_main]

use dns64::Transport;
use dns64bench_fuzz::{CLIENT, Server, assert_well_formed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|query: &[u8]| {
    let server = Server::new(0, false);
    for (transport, limit) in [(Transport::Udp, 1_232), (Transport::Tcp, 65_535)] {
        let Some(reply) = server.at(0).reply(query, CLIENT, transport, |_| None) else { return };
        assert!(reply.len() <= limit);
        assert!(reply[..2] == query[..2], "another id");
        assert_well_formed(&reply);
    }
});
