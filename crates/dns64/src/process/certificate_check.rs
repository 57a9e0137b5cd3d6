//! Checks of the certificates in a configuration: files, period of validity, names and addresses.

use rustls::pki_types::{ServerName, UnixTime};

use crate::config::Settings;
use crate::transport::certificate::{CertificateFiles, faults};

/// Results of the check of all certificates. Each message begins with file and line.
#[derive(Debug, Default)]
pub(super) struct CertificateCheck {
    /// Certificates that cannot be used.
    pub(super) errors: Vec<String>,
    /// Certificates that clients reject, and keys that other users can read.
    pub(super) warnings: Vec<String>,
}

impl CertificateCheck {
    /// Checks the certificates of all listen addresses. Each certificate must contain the name in `[ddr]`, and should contain
    /// the addresses of the resolver (RFC 9462 §4.2).
    pub(super) fn of(settings: &Settings) -> CertificateCheck {
        let mut check = CertificateCheck::default();
        let config = &settings.config;
        let mut names = Vec::new();
        if let Some(name) = &config.ddr.name {
            let name = name.trim_end_matches('.').to_owned();
            names.extend(ServerName::try_from(name).ok());
            let addresses = config.resolver_addresses().into_iter();
            names.extend(addresses.map(|address| ServerName::IpAddress(address.into())));
        }
        let mut seen: Vec<CertificateFiles> = Vec::new();
        for (number, keys) in config.listen.iter().enumerate() {
            let Some(files) = keys.certificate().filter(|files| !seen.contains(files)) else {
                continue;
            };
            let location = settings.location(&format!("listen.{number}.certificate"));
            match files.load() {
                Ok(certificate) => {
                    let file = files.certificate.display();
                    let found = faults(&certificate, &names, UnixTime::now());
                    let found =
                        found.into_iter().map(|fault| format!("certificate {file} {fault}"));
                    let all = found.chain(files.open_key());
                    check.warnings.extend(all.map(|fault| format!("{location}: {fault}")));
                }
                Err(error) => check.errors.push(format!("{location}: {error}")),
            }
            seen.push(files);
        }
        check
    }
}
