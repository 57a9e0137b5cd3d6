//! No reply makes the Measurer's check panic or hang, and a valid one contains an AAAA record.
#![no_main]

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use units::Share;
use tester::measurer::expect::Expectation;
use wire::view::Message;

static EXPECTATION: LazyLock<Expectation> = LazyLock::new(|| {
    let prefixes = vec!["64:ff9b::/96".parse().expect("a prefix")];
    Expectation { aaaa_share: Share::percent(50), check_own_aaaa: true, prefixes }
});

fuzz_target!(|bytes: &[u8]| {
    let Some(message) = Message::new(bytes) else { return };
    for at in [12, 48] {
        let name = Ipv4Addr::new(10, 0, 0, 1);
        if EXPECTATION.judge(&message, at, name).is_ok() {
            assert!(bytes.windows(2).any(|w| w == [0, 28]) && bytes.len() >= 12 + 16);
        }
    }
});
