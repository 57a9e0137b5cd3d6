//! Addresses in the file, with errors that show how one is written.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

/// Reads the address of a host whose port has a key of its own.
pub(super) fn host<'de, D: Deserializer<'de>>(input: D) -> Result<IpAddr, D::Error> {
    struct Host;

    impl Visitor<'_> for Host {
        type Value = IpAddr;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an IP address; write for example \"192.0.2.1\" or \"2001:db8::1\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<IpAddr, E> {
            text.parse().map_err(|_| match text.parse::<SocketAddr>() {
                Ok(both) => E::custom(format!(
                    "{text:?} is an address with a port; write address = \"{}\" and port = {}",
                    both.ip(),
                    both.port()
                )),
                Err(_) => E::invalid_value(Unexpected::Str(text), &self),
            })
        }
    }

    input.deserialize_str(Host)
}

/// Reads an address and port, where there is one.
pub(super) fn service<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SocketAddr>, D::Error> {
    struct Service;

    impl Visitor<'_> for Service {
        type Value = SocketAddr;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an address and port; write for example \"[::1]:9153\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<SocketAddr, E> {
            text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    input.deserialize_str(Service).map(Some)
}
