//! AuthDNS answers any input with a well-formed message of the same ID within the client's limit, or not at all.
#![no_main]

use std::net::Ipv4Addr;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use units::Share;
use tester::authdns::answer::{AuthTransport, MAX_REPLY, MAX_UDP, Zone};
use wire::name::Domain;
use wire::view::Message;

fuzz_target!(|query: &[u8]| {
    let zone = Zone::new(
        Domain::dns64perf(),
        Share::percent(50),
        Duration::from_secs(60),
        Ipv4Addr::LOCALHOST,
    );
    let mut out = [0; MAX_REPLY];
    let len = zone.answer(query, AuthTransport::Udp, &mut out).len;
    if len == 0 {
        return;
    }
    assert!(len <= MAX_UDP);
    let message = Message::new(&out[..len]).expect("a header");
    assert!(message.is_response() && out[..2] == query[..2]);
    let mut at = 12;
    for _ in 0..message.qdcount() {
        at = message.skip_name(at).expect("the question is ours to copy") + 4;
    }
    let records = message.ancount() + message.nscount() + message.arcount();
    for record in message.records(at, records) {
        record.expect("a well-formed record");
    }
});
