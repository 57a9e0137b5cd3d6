//! Keys and signatures of the signed zones. RRsets are signed at query time, because the queried name defines the
//! records.
//!
//! All zones use the same key pair, which is generated at start-up. The signature of the DNSKEY RRset is correct in all
//! zones, including `bogus` and `expired`. A validator therefore accepts the keys, and detects that the signatures of
//! the data are wrong.

use domain::base::Ttl;
use domain::base::iana::{DigestAlgorithm, Rtype};
use domain::base::rdata::{ComposeRecordData, UnknownRecordData};
use domain::crypto::common::{DigestBuilder, DigestType};
use domain::crypto::sign::{self, GenerateParams, KeyPair};
use domain::dnssec::sign::keys::SigningKey;
use domain::dnssec::sign::records::Rrset;
use domain::dnssec::sign::signatures::rrsigs::sign_rrset;
use domain::rdata::dnssec::Timestamp;
use domain::utils::{base16, base64};

use super::config::AuthorityError;
use crate::label::{self, TTL, Tree};
use crate::message::{Name, Record};

/// DNSKEY flags of a key that signs keys and data: Zone Key and SEP (RFC 4034 §2.1.1).
const FLAGS: u16 = 257;
/// Length of a day, in seconds.
const DAY: u32 = 86_400;

/// The keys of the signed zones.
pub(super) struct Keys {
    keys: Vec<(Tree, SigningKey<Vec<u8>, KeyPair>)>,
}

impl Keys {
    /// Generates a key pair for the signed zones below `zone`.
    pub(super) fn make(zone: &Name) -> Result<Keys, AuthorityError> {
        let (secret, public) = sign::generate(&GenerateParams::EcdsaP256Sha256, FLAGS)?;
        let mut keys = Vec::new();
        for tree in Tree::ALL.into_iter().filter(|tree| tree.is_signed()) {
            let pair = KeyPair::from_bytes(&secret, &public)?;
            keys.push((tree, SigningKey::new(tree.apex(zone), FLAGS, pair)));
        }
        Ok(Keys { keys })
    }

    fn of(&self, tree: Tree) -> Option<&SigningKey<Vec<u8>, KeyPair>> {
        self.keys.iter().find(|(of, _)| *of == tree).map(|(_, key)| key)
    }

    /// Returns the DNSKEY record of a signed zone.
    pub(super) fn dnskey(&self, tree: Tree) -> Option<Record> {
        let key = self.of(tree)?;
        Some(Record::new(key.owner().clone(), Rtype::DNSKEY, TTL, rdata(&key.dnskey())))
    }

    /// Returns the signature of an RRset, or `None` in an unsigned zone. An RRset that comes from a wildcard is signed
    /// under the name of the wildcard (RFC 4035 §5.3.2). In this case, `wildcard` is the name of the wildcard without
    /// the label `*`. If the TTLs of an RRset differ, the signature uses the TTL of the first record.
    pub(super) fn sign(
        &self,
        tree: Tree,
        rrset: &[Record],
        wildcard: Option<&Name>,
    ) -> Option<Record> {
        let (key, first) = (self.of(tree)?, rrset.first()?);
        let signed_as =
            wildcard.map_or_else(|| first.owner.clone(), |base| label::prepend("*", base));
        let ttl = Ttl::from_secs(first.ttl);
        let typed: Option<Vec<_>> = rrset
            .iter()
            .map(|record| {
                let data =
                    UnknownRecordData::from_octets(record.rtype, record.data.clone()).ok()?;
                Some(domain::base::Record::new(signed_as.clone(), record.class, ttl, data))
            })
            .collect();
        let is_key = first.rtype == Rtype::DNSKEY;
        let now = Timestamp::now().into_int();
        let (from, to) = match tree {
            Tree::Expired if !is_key => (now.wrapping_sub(400 * DAY), now.wrapping_sub(365 * DAY)),
            _ => (now.wrapping_sub(DAY), now.wrapping_add(7 * DAY)),
        };
        let typed = typed?;
        let rrset = Rrset::new_from_owned(&typed).ok()?;
        let signature = sign_rrset(key, &rrset, Timestamp::from(from), Timestamp::from(to)).ok()?;
        let mut data = rdata(signature.data());
        if tree == Tree::Bogus && !is_key {
            *data.last_mut()? ^= 1;
        }
        Some(Record::new(first.owner.clone(), Rtype::RRSIG, first.ttl, data))
    }

    /// Returns the trust anchors as lines of a zone file, with a DNSKEY and a DS record (RFC 4034 §5.1.4) for each
    /// zone.
    pub(super) fn anchors(&self) -> Vec<String> {
        let lines = self.keys.iter().flat_map(|(_, key)| {
            let (owner, dnskey) = (key.owner(), key.dnskey());
            let algorithm = dnskey.algorithm().to_int();
            let mut digest = DigestBuilder::new(DigestType::Sha256);
            digest.update(owner.as_slice());
            digest.update(&rdata(&dnskey));
            let digest = base16::encode_string(digest.finish().as_ref());
            let public = base64::encode_string(dnskey.public_key());
            let (tag, sha256) = (dnskey.key_tag(), DigestAlgorithm::SHA256.to_int());
            let owner = owner.fmt_with_dot();
            [
                format!("{owner} {TTL} IN DNSKEY {FLAGS} 3 {algorithm} {public}"),
                format!("{owner} {TTL} IN DS {tag} {algorithm} {sha256} {digest}"),
            ]
        });
        lines.collect()
    }
}

fn rdata(data: &impl ComposeRecordData) -> Vec<u8> {
    let mut octets = Vec::new();
    // Appending to a vector cannot fail.
    let Ok(()) = data.compose_rdata(&mut octets);
    octets
}
