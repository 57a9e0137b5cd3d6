//! Whatever a client sends, dns64d's reply is well-formed and no longer than the client allows.
#![no_main]

use dns64::resolver::ttl::TtlLimits;
use dns64::translation::policy::Policy;
use dns64::walk::walk;
use libfuzzer_sys::fuzz_target;
use wire::view::Message;

fuzz_target!(|query: &[u8]| {
    let Some(reply) = walk(query, false, &Policy::default(), &TtlLimits::default(), |_| None) else { return };
    assert!(reply.len() <= 1232);
    let message = Message::new(&reply).expect("a header");
    assert!(message.is_response() && reply[..2] == query[..2]);
});
