//! Certificates of the encrypted transports. They are read again when their files change.
//!
//! ```text
//! files ─► CertificateFiles::load ─► Certificate ─► TLS handshakes
//!   ▲                                    ▲
//!   └── CertificateWatch: changed? ──────┘
//! ```

use std::fmt;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};

/// Permission bits of a key that others than the owner and the group can read, or others than the owner can write.
const OPEN_KEY: u32 = 0o026;

/// Paths of a certificate and its private key, both in PEM format.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CertificateFiles {
    /// File with the certificate, followed by the certificates of its issuers.
    pub(crate) certificate: PathBuf,
    /// File with the private key.
    pub(crate) key: PathBuf,
}

/// Reasons why a certificate cannot be used. The messages never contain parts of the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadCertificate {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .file.display())]
    Read {
        /// Path of the certificate or of the key.
        file: PathBuf,
        /// Error returned by the system call.
        source: io::Error,
    },
    /// A file is not in PEM format, or lacks a certificate or a key.
    #[error("{} has no {expected} in PEM format", .file.display())]
    Content {
        /// Path of the certificate or of the key.
        file: PathBuf,
        /// "certificate" or "private key".
        expected: &'static str,
    },
    /// The key does not belong to the certificate, or has an unsupported type.
    #[error("{} cannot be used with the key {}: {source}", .certificate.display(), .key.display())]
    Pair {
        /// Path of the certificate.
        certificate: PathBuf,
        /// Path of the key.
        key: PathBuf,
        /// Error of the TLS library.
        source: rustls::Error,
    },
}

impl CertificateFiles {
    /// Reads both files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or parsed, or if the key does not belong to the certificate.
    pub(crate) fn load(&self) -> Result<CertifiedKey, BadCertificate> {
        let read = |file: &Path| {
            std::fs::read(file).map_err(|source| BadCertificate::Read { file: file.into(), source })
        };
        let (certificate, key) = (read(&self.certificate)?, read(&self.key)?);
        let lacks = |file: &Path, expected| BadCertificate::Content { file: file.into(), expected };
        let chain: Result<Vec<_>, pem::Error> =
            CertificateDer::pem_slice_iter(&certificate).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| lacks(&self.certificate, "certificate"))?;
        let key =
            PrivateKeyDer::from_pem_slice(&key).map_err(|_| lacks(&self.key, "private key"))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|source| {
            let (certificate, key) = (self.certificate.clone(), self.key.clone());
            BadCertificate::Pair { certificate, key, source }
        })
    }

    /// Returns a warning if other users can read or replace the private key.
    pub(crate) fn open_key(&self) -> Option<String> {
        let mode = std::fs::metadata(&self.key).ok()?.permissions().mode();
        (mode & OPEN_KEY != 0).then(|| {
            let file = self.key.display();
            format!(
                "the private key {file} has mode {:03o}; use 600, or 640 with a group",
                mode & 0o777
            )
        })
    }

    /// Returns the identity of both files. Links are followed, so that a link to another file is a change.
    fn identity(&self) -> [Option<FileIdentity>; 2] {
        [&self.certificate, &self.key].map(|file| FileIdentity::of(file).ok())
    }
}

/// Properties of a file that differ after it has been changed or replaced: device, inode, size, and time of the last
/// change in seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl FileIdentity {
    fn of(file: &Path) -> io::Result<FileIdentity> {
        let metadata = std::fs::metadata(file)?;
        Ok(FileIdentity {
            inode: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Returns a sentence for each reason why clients would reject a certificate: it has expired, is not valid yet, or does not
/// contain one of `names`.
pub(crate) fn faults(
    certificate: &CertifiedKey,
    names: &[ServerName<'_>],
    now: UnixTime,
) -> Vec<String> {
    let parsed = certificate.end_entity_cert().and_then(ParsedCertificate::try_from);
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return vec![format!("is malformed: {error}")],
    };
    let mut faults = Vec::new();
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    // Without trust anchors, the certificate is never trusted, but its period is checked first.
    let result = verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &RootCertStore::empty(),
        &[],
        now,
        algorithms,
    );
    match result {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            not_after,
            ..
        })) => {
            faults.push(format!("expired at {}", Date(not_after)));
        }
        Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before,
            ..
        })) => faults.push(format!("is not valid before {}", Date(not_before))),
        _ => {}
    }
    let missing = names.iter().filter(|name| verify_server_name(&parsed, name).is_err());
    faults.extend(missing.map(|name| format!("does not contain {}", name.to_str())));
    faults
}

/// Formats a time as in RFC 3339.
struct Date(UnixTime);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = UNIX_EPOCH + Duration::from_secs(self.0.as_secs());
        humantime::format_rfc3339_seconds(at).fmt(f)
    }
}

/// A certificate in use. New TLS handshakes use its current version.
#[derive(Debug)]
pub(crate) struct Certificate {
    files: CertificateFiles,
    /// Identity of the files before they were first read.
    first: [Option<FileIdentity>; 2],
    current: ArcSwap<CertifiedKey>,
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns the errors of [`CertificateFiles::load`].
    pub(crate) fn load(files: CertificateFiles) -> Result<Certificate, BadCertificate> {
        let first = files.identity();
        let current = ArcSwap::from_pointee(files.load()?);
        Ok(Certificate { files, first, current })
    }

    /// Returns the paths of the files.
    pub(crate) fn files(&self) -> &CertificateFiles {
        &self.files
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

/// Detection of changes to the files of a certificate.
#[derive(Debug)]
pub(crate) struct CertificateWatch {
    certificate: Arc<Certificate>,
    /// Identity of the files when they were last read.
    read: [Option<FileIdentity>; 2],
    /// Identity of the files at the last check. Files that have just changed are read at the next check, because
    /// certificate and key are usually replaced one after the other.
    seen: [Option<FileIdentity>; 2],
    /// Last error in reading the files, which is reported once. Empty after a success.
    error: String,
}

/// Result of a check for changed files.
#[derive(Debug)]
pub(crate) enum Renewal {
    /// The files have not changed.
    Unchanged,
    /// The new certificate is in use.
    Renewed,
    /// The new files cannot be used. The old certificate stays in use.
    Rejected(BadCertificate),
}

impl CertificateWatch {
    /// Starts to watch the files of a certificate.
    pub(crate) fn new(certificate: Arc<Certificate>) -> CertificateWatch {
        let read = certificate.first;
        CertificateWatch { certificate, read, seen: read, error: String::new() }
    }

    /// Returns the paths of the files.
    pub(crate) fn files(&self) -> &CertificateFiles {
        self.certificate.files()
    }

    /// Reads the files if they have changed, and are the same as at the last check. With `is_forced`, the files are read
    /// in any case.
    pub(crate) fn check(&mut self, is_forced: bool) -> Renewal {
        let now = self.certificate.files.identity();
        let is_stable = std::mem::replace(&mut self.seen, now) == now;
        if !is_forced && (now == self.read || !is_stable) {
            return Renewal::Unchanged;
        }
        let loaded = self.certificate.files.load();
        // After an error of a system call, the files are read again at the next check.
        if !matches!(loaded, Err(BadCertificate::Read { .. })) {
            self.read = now;
        }
        match loaded {
            Ok(certificate) => {
                self.error.clear();
                let old = self.certificate.current.swap(Arc::new(certificate));
                let is_same = old.cert == self.certificate.current.load().cert;
                if is_same { Renewal::Unchanged } else { Renewal::Renewed }
            }
            Err(error) => {
                let before = std::mem::replace(&mut self.error, error.to_string());
                if before == self.error { Renewal::Unchanged } else { Renewal::Rejected(error) }
            }
        }
    }
}
