//! What an interface gives to AF_XDP.

use net::xdp::{self, Way};

use super::{Finding, finding};

/// What an interface does with AF_XDP: a finding for each way for packets to get past the stack, or
/// one that says why there is none.
pub(super) fn findings(interface: &str) -> Vec<Finding> {
    let subject = |what: &str| format!("AF_XDP on {interface}: {what}");
    let probed = match xdp::probe(interface) {
        Ok(probed) => probed,
        Err(error) => {
            let found = finding(&subject("any"), error.to_string());
            return vec![found.concern_if(true, "AuthDNS cannot answer past the stack here", None)];
        }
    };
    let mut all = vec![finding(
        &subject("queues"),
        format!("{} for packets that come, a worker of AuthDNS for each", probed.queues),
    )];
    all.extend(probed.ways.iter().map(|(way, tried)| {
        let value = tried.as_ref().map_or_else(ToString::to_string, |()| "works".into());
        let found = finding(&subject(&way.to_string()), value);
        // The slower ways do without the driver.
        let why = "AF_XDP cannot be used at all";
        found.concern_if(*way == Way::Generic && tried.is_err(), why, None)
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let found = findings("no-such-interface");
        assert_eq!(found.len(), 1);
        assert!(found[0].value.contains("no interface no-such-interface"), "{found:?}");
        assert!(found[0].concern.is_some());
    }
}
