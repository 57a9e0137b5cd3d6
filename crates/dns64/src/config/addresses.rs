//! Addresses in the configuration file, with errors that show the correct form.

use std::fmt;

use net::address::{BadAddress, HostAddr, ServiceAddr};
use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

/// Reads the address of a host. The port is the value of a separate key.
pub(super) fn host<'de, D: Deserializer<'de>>(input: D) -> Result<HostAddr, D::Error> {
    struct Host;

    impl Visitor<'_> for Host {
        type Value = HostAddr;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an IP address; write for example \"192.0.2.1\" or \"2001:db8::1\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<HostAddr, E> {
            let host = text.parse().map_err(|bad| match (text.parse::<ServiceAddr>(), bad) {
                (Ok(both), _) => E::custom(format!(
                    "{text:?} includes a port; write address = \"{}\" and port = {}",
                    both.host(),
                    both.port()
                )),
                (_, BadAddress::Address) => E::invalid_value(Unexpected::Str(text), &self),
                (_, bad) => E::custom(format!("{text:?}: {bad}")),
            })?;
            with_zone(host).map(|()| host)
        }
    }

    input.deserialize_str(Host)
}

/// Reads an optional address with port.
pub(super) fn service<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<ServiceAddr>, D::Error> {
    struct Service;

    impl Visitor<'_> for Service {
        type Value = ServiceAddr;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an address and port; write for example \"[::1]:9153\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<ServiceAddr, E> {
            let address: ServiceAddr = text.parse().map_err(|bad| match bad {
                BadAddress::Address => E::invalid_value(Unexpected::Str(text), &self),
                bad => E::custom(format!("{text:?}: {bad}")),
            })?;
            with_zone(address.host()).map(|()| address)
        }
    }

    input.deserialize_str(Service).map(Some)
}

fn with_zone<E: Error>(host: HostAddr) -> Result<(), E> {
    lack_of_zone(host).map_or(Ok(()), |reason| Err(E::custom(reason)))
}

/// Returns the reason why an address cannot be used, or `None` if it can be used. A link-local address needs a zone
/// identifier.
pub(super) fn lack_of_zone(host: HostAddr) -> Option<String> {
    host.lacks_zone()
        .then(|| format!("{host} is link-local: append its interface, for example \"{host}%eth0\""))
}
