//! Key pairs that the zones of all cases share.

use domain::base::iana::{Class, DigestAlgorithm, SecurityAlgorithm};
use domain::base::rdata::ComposeRecordData;
use domain::base::{Record, ToName, Ttl};
use domain::crypto::common::{DigestBuilder, DigestType};
use domain::crypto::sign::{GenerateParams, KeyPair, SignRaw, generate};
use domain::rdata::{Dnskey, Ds, ZoneRecordData};
use testbed::signed::{TestData, TestName, TestRecord};

/// Number of pairs of each algorithm.
const EACH: usize = 6;
/// Flags of a key that signs a zone.
pub(crate) const ZONE_KEY: u16 = 256;
/// Flags of a key that signs the keys of a zone.
pub(crate) const ENTRY_KEY: u16 = 257;

/// Index of a key pair in the [`Pool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyId(pub(crate) usize);

/// Key pairs. ECDSA P-256 and Ed25519 alternate.
#[derive(Debug)]
pub(crate) struct Pool(Vec<(KeyPair, Dnskey<Vec<u8>>)>);

impl Pool {
    /// Returns a pool of new key pairs.
    ///
    /// # Panics
    /// Panics if the cryptographic library has no random numbers.
    pub(crate) fn new() -> Pool {
        let algorithms = [GenerateParams::EcdsaP256Sha256, GenerateParams::Ed25519];
        let pair = |params: &GenerateParams| {
            let (secret, public) = generate(params, ENTRY_KEY).expect("random numbers");
            let pair = KeyPair::from_bytes(&secret, &public).expect("a generated key is valid");
            (pair, public)
        };
        Pool(algorithms.iter().cycle().take(2 * EACH).map(pair).collect())
    }

    /// Returns the number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the public key with these flags.
    ///
    /// # Panics
    /// Does not panic: the keys are short.
    pub(crate) fn dnskey(&self, id: KeyId, flags: u16) -> Dnskey<Vec<u8>> {
        let public = &self.0[id.0].1;
        let octets = public.public_key().clone();
        Dnskey::new(flags, 3, public.algorithm(), octets).expect("the key is short")
    }

    /// Returns the algorithm of a pair.
    pub(crate) fn algorithm(&self, id: KeyId) -> SecurityAlgorithm {
        self.0[id.0].1.algorithm()
    }

    /// Returns the signature of some data.
    ///
    /// # Panics
    /// Panics if the cryptographic library has no random numbers.
    pub(crate) fn sign(&self, id: KeyId, data: &[u8]) -> Vec<u8> {
        self.0[id.0].0.sign_raw(data).expect("random numbers").as_ref().to_vec()
    }
}

/// Returns the DS data of a key, with a SHA-256 digest, or with SHA-384 if `is_long` is true.
///
/// # Panics
/// Does not panic: the digest has the right length.
pub(crate) fn ds(apex: &TestName, key: &Dnskey<Vec<u8>>, is_long: bool) -> TestData {
    let (kind, number) = match is_long {
        false => (DigestType::Sha256, DigestAlgorithm::SHA256),
        true => (DigestType::Sha384, DigestAlgorithm::SHA384),
    };
    let mut rdata = Vec::new();
    let Ok(()) = key.compose_canonical_rdata(&mut rdata);
    let mut digest = DigestBuilder::new(kind);
    digest.update(apex.to_canonical_name::<Vec<u8>>().as_slice());
    digest.update(&rdata);
    let digest = digest.finish().as_ref().to_vec();
    let ds = Ds::new(key.key_tag(), key.algorithm(), number, digest).expect("the digest is short");
    ZoneRecordData::Ds(ds)
}

/// Returns a record.
pub(crate) fn record(owner: &TestName, ttl: u32, data: TestData) -> TestRecord {
    Record::new(owner.clone(), Class::IN, Ttl::from_secs(ttl), data)
}

/// Changes the owner name of a record.
pub(crate) fn set_owner(record: &mut TestRecord, owner: &TestName) {
    let data = record.data().clone();
    *record = Record::new(owner.clone(), record.class(), record.ttl(), data);
}
