//! Discovery of the encrypted transports by clients (`[ddr]`, RFC 9462).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::listen::{ListenKeys, ListenTransport};
use crate::name::LowerName;

/// `[ddr]`: discovery of the encrypted transports by clients (RFC 9462). Clients query the SVCB records of
/// `_dns.resolver.arpa`. There is one record for each encrypted listen address with another transport, port or path.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct DdrKeys {
    /// Name of this resolver. It must be in the certificates. Without this key, there is no discovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Addresses of this resolver, as clients reach them, for the address hints in the records. They should be in the
    /// certificates. Without this key, these are the listen addresses, except wildcard and loopback addresses.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Keys of SVCB parameters (RFC 9460 §14.3.2, RFC 9461 §10.1).
const ALPN: u16 = 1;
const PORT: u16 = 3;
const IPV4_HINT: u16 = 4;
const IPV6_HINT: u16 = 6;
const DOH_PATH: u16 = 7;

impl DdrKeys {
    /// Returns the addresses of the resolver as clients reach them. `listen` contains all listen addresses.
    pub(super) fn addresses(&self, listen: &[ListenKeys]) -> Vec<IpAddr> {
        self.addresses_of(encrypted(listen))
    }

    /// Returns the configured addresses. Without them, returns the addresses of these entries of `listen`.
    fn addresses_of<'a>(&self, listen: impl Iterator<Item = &'a ListenKeys>) -> Vec<IpAddr> {
        if !self.addresses.is_empty() {
            return self.addresses.clone();
        }
        let mut addresses = Vec::new();
        for keys in listen {
            let ip = keys.address.ip().to_canonical();
            if !ip.is_unspecified() && !ip.is_loopback() && !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
        addresses
    }

    /// Returns the data of the SVCB records of `_dns.resolver.arpa`, in the order of the listen addresses.
    ///
    /// # Errors
    /// Returns the reason if the name of the resolver is not valid.
    pub(super) fn records(&self, listen: &[ListenKeys]) -> Result<Vec<Vec<u8>>, String> {
        let Some(written) = &self.name else { return Ok(Vec::new()) };
        let name: LowerName =
            written.parse().map_err(|error| format!("name '{written}': {error}"))?;
        let mut parameters = Vec::new();
        for keys in encrypted(listen) {
            let service =
                |keys: &ListenKeys| (keys.transport, keys.address.port(), keys.path().to_owned());
            let same = encrypted(listen).filter(|other| service(other) == service(keys));
            let one = parameters_of(keys, &self.addresses_of(same));
            if !parameters.contains(&one) {
                parameters.push(one);
            }
        }
        let records = (1_u16..).zip(parameters);
        let data = |(priority, parameters): (u16, Vec<u8>)| {
            [&priority.to_be_bytes()[..], name.wire(), &parameters].concat()
        };
        Ok(records.map(data).collect())
    }
}

/// Returns the listen addresses with a certificate.
pub(super) fn encrypted(listen: &[ListenKeys]) -> impl Iterator<Item = &ListenKeys> {
    listen.iter().filter(|keys| keys.certificate().is_some())
}

/// Returns the SVCB parameters of a listen address (RFC 9461). Without the parameter `port`, the port is the default one.
fn parameters_of(keys: &ListenKeys, addresses: &[IpAddr]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |key: u16, value: &[u8]| {
        if !value.is_empty() {
            out.extend(key.to_be_bytes());
            out.extend((value.len() as u16).to_be_bytes());
            out.extend(value);
        }
    };
    let (alpn, path) = match keys.transport {
        ListenTransport::Udp => return out,
        ListenTransport::Tls => (&b"\x03dot"[..], String::new()),
        ListenTransport::Quic => (&b"\x03doq"[..], String::new()),
        ListenTransport::Https => (&b"\x02h2"[..], format!("{}{{?dns}}", keys.path())),
    };
    put(ALPN, alpn);
    let port = keys.address.port();
    if port != keys.transport.default_port() {
        put(PORT, &port.to_be_bytes());
    }
    let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
    for address in addresses {
        match address {
            IpAddr::V4(address) => ipv4.extend(address.octets()),
            IpAddr::V6(address) => ipv6.extend(address.octets()),
        }
    }
    put(IPV4_HINT, &ipv4);
    put(IPV6_HINT, &ipv6);
    put(DOH_PATH, path.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use domain::dep::octseq::Parser;
    use domain::rdata::svcb::Svcb;

    use crate::config::Settings;

    /// Returns the records in the presentation format.
    fn records(text: &str) -> Result<Vec<String>, String> {
        let text = format!("{text}\n[[upstream]]\naddress = '192.0.2.1'\n");
        let settings = Settings::from_text(&text, Path::new("test.toml"));
        let settings = settings.map_err(|error| error.to_string())?;
        let data = settings.config.ddr.records(&settings.config.listen)?;
        let text = |data: &Vec<u8>| {
            let mut parser = Parser::from_ref(&data[..]);
            Svcb::parse(&mut parser).unwrap().to_string()
        };
        Ok(data.iter().map(text).collect())
    }

    const LISTEN: &str = "\
listen = [
  '[2001:db8::53]:53',
  { address = '2001:db8::53', transport = 'tls', certificate = 'a', key = 'b' },
  { address = '192.0.2.53', transport = 'tls', certificate = 'a', key = 'b' },
  { address = '2001:db8::53', transport = 'https', certificate = 'a', key = 'b', https-path = '/q' },
  { address = '[::1]:8853', transport = 'quic', certificate = 'a', key = 'b' },
  { address = '127.0.0.1:8080', transport = 'https' },
]
";

    #[test]
    fn one_record_per_transport() {
        let found = records(&format!("{LISTEN}[ddr]\nname = 'dns64.example'")).unwrap();
        assert_eq!(
            found,
            [
                "1 dns64.example. alpn=dot ipv4hint=192.0.2.53 ipv6hint=2001:db8::53",
                "2 dns64.example. alpn=h2 ipv6hint=2001:db8::53 dohpath=/q{?dns}",
                "3 dns64.example. alpn=doq port=8853",
            ]
        );
        let other = format!("{LISTEN}[ddr]\nname = 'dns64.example'\naddresses = ['2001:db8::1']");
        assert!(records(&other).unwrap()[0].ends_with("ipv6hint=2001:db8::1"));
        assert_eq!(records(LISTEN).unwrap(), [""; 0]);
    }

    #[test]
    fn invalid_tables_are_rejected() {
        let twice = records(&format!("{LISTEN}[ddr]\nname = 'a..b'")).unwrap_err();
        assert!(twice.contains("test.toml:10:") && twice.contains("a..b"), "{twice}");
        assert_eq!(records("[ddr]\nname = 'dns64.example'").unwrap(), [""; 0]);
    }
}
