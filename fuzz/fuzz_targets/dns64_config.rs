//! Any configuration is rejected or used: the effective configuration can be parsed again, and queries are answered
//! with it.
#![no_main]

use std::path::Path;

use dns64::Transport;
use dns64::config::Settings;
use dns64bench_fuzz::{CLIENT, assert_well_formed, without_cache};
use libfuzzer_sys::fuzz_target;

const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04host\x04test\0\0\x1c\0\x01";

fuzz_target!(|text: &str| {
    // Without an upstream, the system's configuration would be read.
    let text = format!("{text}\n[[upstream]]\naddress = '192.0.2.1'\n");
    let Ok(settings) = Settings::from_text(&text, Path::new("fuzz")) else { return };
    let written = settings.to_toml();
    let again = Settings::from_text(&written, Path::new("fuzz"))
        .unwrap_or_else(|e| panic!("{written}\n{e}"));
    assert_eq!(written, again.to_toml());
    let ask = |key: &dns64::KeyBuf| {
        let mut message = b"\0\0\x81\x80\0\x01\0\x01\0\0\0\0".to_vec();
        message.extend(key.question());
        message.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x08\x08\x08\x08");
        Some(message)
    };
    let reply = without_cache(&settings).reply(QUERY, CLIENT, Transport::Udp, ask);
    assert_well_formed(&reply.expect("a query gets a reply"));
});
