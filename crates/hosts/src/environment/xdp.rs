//! AF_XDP features of an interface.

use std::io;
use std::time::Duration;

use net::ethtool::{HashedFields, steering};
use net::xdp::{self, AttachMode, LoopTest, Mode};
use units::grouped;

use crate::environment::finding::{Finding, finding};

/// Returns the AF_XDP findings of an interface: the number of its queues, how it selects a queue, and a finding for
/// each AF_XDP mode. If AF_XDP cannot be used, the only finding contains the reason.
pub(super) fn findings(interface: &str) -> Vec<Finding> {
    let subject = |what: &str| format!("AF_XDP on {interface}: {what}");
    let probed = match xdp::probe(interface) {
        Ok(probed) => probed,
        Err(error) => {
            let found = finding(&subject("any"), error.to_string());
            return vec![found.concern_if(true, "AuthDNS cannot use AF_XDP here", None)];
        }
    };
    let mut all = vec![
        finding(
            &subject("queues"),
            format!("{} for received packets, with one worker of AuthDNS each", probed.queues),
        ),
        steered(interface, probed.queues),
    ];
    let tried = |(mode, tried): &(AttachMode, io::Result<()>)| {
        attached(&subject(&mode.to_string()), *mode, tried)
    };
    all.extend(probed.attach_modes.iter().map(tried));
    all
}

/// Returns the finding about one mode of AF_XDP. If the kernel refuses zero-copy mode, the finding contains a hint: a
/// virtio device supports this mode only with an additional feature.
fn attached(subject: &str, mode: AttachMode, tried: &io::Result<()>) -> Finding {
    let Err(error) = tried else { return finding(subject, "works") };
    let is_refused = mode == AttachMode::ZeroCopy && error.kind() == io::ErrorKind::InvalidInput;
    let hint = match is_refused {
        true => "; a virtio device needs VIRTIO_F_ACCESS_PLATFORM (QEMU: iommu_platform=on)",
        false => "",
    };
    let found = finding(subject, format!("not available: {error}{hint}"));
    // The generic mode needs no support from the driver. If it fails, there is no usable mode.
    let why = "AF_XDP cannot be used at all";
    let found = found.concern_if(mode == AttachMode::Generic, why, None);
    Finding { unavailable: true, ..found }
}

/// Returns the finding about how an interface selects one of its `queues` queues for a received packet.
fn steered(interface: &str, queues: u32) -> Finding {
    let found = steering(interface);
    let word = |hashed: Option<HashedFields>| match hashed {
        None => "not reported by the driver",
        Some(HashedFields::Nothing) => "by nothing",
        Some(HashedFields::Addresses) => "by addresses",
        Some(HashedFields::AddressesAndPorts) => "by addresses and ports",
    };
    let rules = match found.by_rules {
        Some(true) => "on",
        Some(false) => "off",
        None => "unknown",
    };
    let value = format!(
        "UDP over IPv4 {}, over IPv6 {}; ntuple rules {rules}",
        word(found.over_ipv4),
        word(found.over_ipv6)
    );
    let families = [("udp4", found.over_ipv4), ("udp6", found.over_ipv6)];
    let lacks = |hashed: Option<HashedFields>| {
        hashed.is_some_and(|by| by != HashedFields::AddressesAndPorts)
    };
    let fix: Vec<String> = families
        .iter()
        .filter(|(_, hashed)| lacks(*hashed))
        .map(|(flow, _)| format!("ethtool -N {interface} rx-flow-hash {flow} sdfn"))
        .collect();
    let why = "all queries from one address arrive at one queue and are answered by one worker";
    let mend_all = fix.join("; ");
    finding(&format!("AF_XDP on {interface}: queue selection"), value).concern_if(
        queues > 1 && !fix.is_empty(),
        why,
        Some(&mend_all),
    )
}

/// Sends datagrams from one interface to another for `time`. Returns a finding about the datagrams
/// that arrived.
pub(super) fn looped(from: &str, to: &str, time: Duration) -> Finding {
    let subject = format!("AF_XDP from {from} to {to}");
    let found = match xdp::loop_test(from, to, Mode::Auto, time) {
        Ok(found) => found,
        Err(error) => {
            let why = "the loop cannot be tested";
            return finding(&subject, error.to_string()).concern_if(true, why, None);
        }
    };
    let LoopTest { out, back, sent, received, dropped, time } = found;
    let per_second = received as f64 / time.as_secs_f64();
    let mut value = format!(
        "{} of {} datagrams arrived in {:.1} s, {}/s; sent {out}, received {back}",
        grouped(received),
        grouped(sent),
        time.as_secs_f64(),
        grouped(per_second as u64)
    );
    // Losses are harmless, because a sender at full speed may overrun the receiver.
    let lost = sent.saturating_sub(received);
    if lost > 0 {
        let (lost, dropped) = (grouped(lost), grouped(dropped));
        value += &format!("; {lost} were lost, {dropped} of them because its rings were full");
    }
    let why =
        "nothing arrived: check the cable between them, or that the switch passes 198.18.255.0/24";
    finding(&subject, value).concern_if(received == 0, why, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_loop_interface_is_reported() {
        let found = looped("no-such-interface", "nor-this", Duration::from_millis(1));
        assert!(found.value.contains("no interface nor-this"), "{found:?}");
        assert!(found.concern.is_some());
    }

    #[test]
    fn a_mode_that_fails_is_not_available() {
        let tried = |mode, error| attached("x", mode, &Err(io::Error::from_raw_os_error(error)));
        let virtio = tried(AttachMode::ZeroCopy, 22);
        assert!(virtio.unavailable && virtio.concern.is_none(), "{virtio:?}");
        assert!(virtio.value.contains("VIRTIO_F_ACCESS_PLATFORM"), "{virtio:?}");
        let veth = tried(AttachMode::ZeroCopy, 95);
        assert!(veth.unavailable && !veth.value.contains("VIRTIO"), "{veth:?}");
        assert!(tried(AttachMode::Generic, 95).concern.is_some());
        assert!(!attached("x", AttachMode::Copy, &Ok(())).unavailable);
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let found = findings("no-such-interface");
        assert_eq!(found.len(), 1);
        assert!(found[0].value.contains("no interface no-such-interface"), "{found:?}");
        assert!(found[0].concern.is_some());
    }
}
