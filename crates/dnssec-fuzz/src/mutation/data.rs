//! Changes of the data of a record.

use domain::base::iana::{DigestAlgorithm, Nsec3HashAlgorithm, Rtype, SecurityAlgorithm};
use domain::base::{Serial, Ttl};
use domain::rdata::dnssec::{RtypeBitmap, Timestamp};
use domain::rdata::nsec3::{Nsec3Salt, OwnerHash};
use domain::rdata::{
    A, Aaaa, Cname, Dname, Dnskey, Ds, Mx, Ns, Nsec, Nsec3, Rrsig, Soa, ZoneRecordData,
};
use rand::RngExt;
use rand::rngs::StdRng;
use testbed::signed::{TestData, TestName};

use super::scene::{Scene, pick};
use crate::denial::bitmap;
use crate::draft::Set;

/// Changes one record of a set that `is_suitable` accepts. Returns false if there is no such set, or if its data cannot
/// be changed.
pub(super) fn change_record(scene: &mut Scene<'_>, is_suitable: impl Fn(&Set) -> bool) -> bool {
    let other = scene.some_name();
    let Some(index) = scene.find(is_suitable) else { return false };
    let records = &mut scene.draft.sets[index].records;
    let at = scene.rng.random_range(..records.len());
    match changed(records[at].data(), other, scene.rng) {
        Some(data) => *records[at].data_mut() = data,
        None => return false,
    }
    true
}

/// Returns data that differ from these. `other` is a name that the data can contain.
pub(super) fn changed(data: &TestData, other: TestName, rng: &mut StdRng) -> Option<TestData> {
    Some(match data {
        ZoneRecordData::A(a) => {
            let bit = rng.random_range(..32_usize);
            ZoneRecordData::A(A::new((u32::from(a.addr()) ^ (1 << bit)).into()))
        }
        ZoneRecordData::Aaaa(a) => {
            let bit = rng.random_range(..64_usize);
            ZoneRecordData::Aaaa(Aaaa::new((u128::from(a.addr()) ^ (1 << bit)).into()))
        }
        ZoneRecordData::Cname(_) => ZoneRecordData::Cname(Cname::new(other)),
        ZoneRecordData::Dname(_) => ZoneRecordData::Dname(Dname::new(other)),
        ZoneRecordData::Ns(_) => ZoneRecordData::Ns(Ns::new(other)),
        ZoneRecordData::Mx(mx) => ZoneRecordData::Mx(Mx::new(mx.preference() ^ 1, other)),
        ZoneRecordData::Soa(soa) => ZoneRecordData::Soa(Soa::new(
            soa.mname().clone(),
            soa.rname().clone(),
            Serial(soa.serial().into_int().wrapping_add(1)),
            soa.refresh(),
            soa.retry(),
            soa.expire(),
            soa.minimum(),
        )),
        ZoneRecordData::Ds(ds) => ZoneRecordData::Ds(changed_ds(ds, rng)?),
        ZoneRecordData::Dnskey(key) => ZoneRecordData::Dnskey(changed_key(key, rng)?),
        ZoneRecordData::Nsec(nsec) => ZoneRecordData::Nsec(Nsec::new(other, nsec.types().clone())),
        ZoneRecordData::Nsec3(nsec3) => ZoneRecordData::Nsec3(changed_nsec3(nsec3, rng)),
        ZoneRecordData::Rrsig(rrsig) => ZoneRecordData::Rrsig(changed_rrsig(rrsig, other, rng)?),
        _ => return None,
    })
}

fn changed_ds(ds: &Ds<Vec<u8>>, rng: &mut StdRng) -> Option<Ds<Vec<u8>>> {
    let (mut tag, mut algorithm, mut kind) = (ds.key_tag(), ds.algorithm(), ds.digest_type());
    let mut digest = ds.digest().clone();
    match rng.random_range(..5_usize) {
        0 => flip(&mut digest, rng),
        1 => tag ^= 1 << rng.random_range(..16_usize),
        2 => algorithm = some_algorithm(rng),
        3 => kind = DigestAlgorithm::from_int(pick(rng, &[0, 2, 3, 4, 200])?),
        _ => digest.truncate(20),
    }
    Ds::new(tag, algorithm, kind, digest).ok()
}

fn changed_key(key: &Dnskey<Vec<u8>>, rng: &mut StdRng) -> Option<Dnskey<Vec<u8>>> {
    let (mut flags, mut protocol, mut algorithm) = (key.flags(), key.protocol(), key.algorithm());
    let mut octets = key.public_key().clone();
    match rng.random_range(..7_usize) {
        0 => flags ^= 0x0100,
        1 => flags ^= 0x0080,
        2 => flags ^= 0x0001,
        3 => flags ^= 1 << rng.random_range(..16_usize),
        4 => protocol = pick(rng, &[0, 2, 255])?,
        5 => algorithm = some_algorithm(rng),
        _ => flip(&mut octets, rng),
    }
    Dnskey::new(flags, protocol, algorithm, octets).ok()
}

fn changed_nsec3(nsec3: &Nsec3<Vec<u8>>, rng: &mut StdRng) -> Nsec3<Vec<u8>> {
    let (mut hash, mut flags) = (nsec3.hash_algorithm(), nsec3.flags());
    let mut iterations = nsec3.iterations();
    let mut next = nsec3.next_owner().as_slice().to_vec();
    match rng.random_range(..6_usize) {
        0 => hash = Nsec3HashAlgorithm::from_int(2),
        1 => flags ^= 1,
        2 => flags |= 2 << rng.random_range(..6_usize),
        3 => iterations = 2_500,
        4 => flip(&mut next, rng),
        _ => next.truncate(19),
    }
    Nsec3::new(
        hash,
        flags,
        iterations,
        nsec3.salt().clone(),
        OwnerHash::from_octets(next).expect("a short hash"),
        nsec3.types().clone(),
    )
}

/// Returns an NSEC3 record with another salt, or with one more iteration.
pub(super) fn with_other_parameters(nsec3: &Nsec3<Vec<u8>>, is_salt: bool) -> Nsec3<Vec<u8>> {
    let (mut iterations, mut salt) = (nsec3.iterations(), nsec3.salt().as_slice().to_vec());
    if is_salt {
        salt.push(1);
    } else {
        iterations = iterations.wrapping_add(1);
    }
    Nsec3::new(
        nsec3.hash_algorithm(),
        nsec3.flags(),
        iterations,
        Nsec3Salt::from_octets(salt).expect("a short salt"),
        nsec3.next_owner().clone(),
        nsec3.types().clone(),
    )
}

/// Returns a signature record with one changed field.
pub(super) fn changed_rrsig(
    rrsig: &Rrsig<Vec<u8>, TestName>,
    other: TestName,
    rng: &mut StdRng,
) -> Option<Rrsig<Vec<u8>, TestName>> {
    let (mut covered, mut algorithm, mut labels) =
        (rrsig.type_covered(), rrsig.algorithm(), rrsig.labels());
    let (mut ttl, mut tag) = (rrsig.original_ttl().as_secs(), rrsig.key_tag());
    let (mut inception, mut expiration) =
        (rrsig.inception().into_int(), rrsig.expiration().into_int());
    let (mut signer, mut signature) = (rrsig.signer_name().clone(), rrsig.signature().clone());
    match rng.random_range(..11_usize) {
        0 => covered = some_type(rng),
        1 => algorithm = some_algorithm(rng),
        2 => labels = some_labels(labels, rng),
        3 => ttl = pick(rng, &[0, ttl.wrapping_sub(1), ttl.wrapping_add(1), u32::MAX])?,
        4 => inception = inception.wrapping_add(1),
        5 => expiration = expiration.wrapping_add(1),
        6 => tag ^= 1 << rng.random_range(..16_usize),
        7 => signer = other,
        8 => signature.truncate(pick(rng, &[0, 1, 32, 63])?),
        9 => signature.push(0),
        _ => flip(&mut signature, rng),
    }
    Rrsig::new(
        covered,
        algorithm,
        labels,
        Ttl::from_secs(ttl),
        Timestamp::from(expiration),
        Timestamp::from(inception),
        tag,
        signer,
        signature,
    )
    .ok()
}

fn flip(octets: &mut [u8], rng: &mut StdRng) {
    if !octets.is_empty() {
        let at = rng.random_range(..octets.len());
        octets[at] ^= 1 << rng.random_range(..8_usize);
    }
}

/// Returns an algorithm: supported or unknown. Validators disagree on those with SHA-1, and on algorithm 16.
pub(super) fn some_algorithm(rng: &mut StdRng) -> SecurityAlgorithm {
    let all = [0, 1, 8, 10, 13, 14, 15, 200, 253];
    SecurityAlgorithm::from_int(all[rng.random_range(..all.len())])
}

/// Returns a type that matters in bitmaps and signatures.
pub(super) fn some_type(rng: &mut StdRng) -> Rtype {
    let all = [
        Rtype::A,
        Rtype::NS,
        Rtype::CNAME,
        Rtype::SOA,
        Rtype::AAAA,
        Rtype::DNAME,
        Rtype::DS,
        Rtype::RRSIG,
        Rtype::NSEC,
        Rtype::DNSKEY,
        Rtype::NSEC3,
        Rtype::from_int(128),
    ];
    all[rng.random_range(..all.len())]
}

/// Returns another label count.
pub(super) fn some_labels(labels: u8, rng: &mut StdRng) -> u8 {
    let all = [0, labels.wrapping_sub(1), labels.wrapping_sub(1), labels.wrapping_add(1), 127, 255];
    all[rng.random_range(..all.len())]
}

/// Returns a type bitmap that differs in one type. In half of the cases, this is `queried`.
pub(super) fn toggled(
    types: &RtypeBitmap<Vec<u8>>,
    queried: Rtype,
    rng: &mut StdRng,
) -> RtypeBitmap<Vec<u8>> {
    let one = if rng.random_bool(0.5) { queried } else { some_type(rng) };
    let mut all: Vec<Rtype> = types.iter().filter(|rtype| *rtype != one).collect();
    if !types.contains(one) {
        all.push(one);
    }
    bitmap(&all)
}
