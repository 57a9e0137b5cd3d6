//! Tests of whole validations.

mod fuzzed;

use bytes::Bytes;
use domain::base::iana::{ExtendedErrorCode as Code, Rcode, Rtype};
use domain::crypto::sign::GenerateParams;
use domain::rdata::ZoneRecordData;
use proptest::prelude::*;

use testbed::signed::{NOW, TestRecord, TestZone, World, message, name, records, renamed, soa};

use crate::testing::{anchors, validate, validate_to, validator};
use crate::{Limit, Limits, Name, Security, TrustAnchors, Validation, Validator, Verdict};

/// Root, a top-level domain and two zones below it. `plain.test` is an unsigned delegation.
fn world() -> World {
    let mut world = World::new(&[".", "test.", "example.test.", "other.test."]);
    world.unsigned.push(name("plain.test."));
    world
}

fn response(owner: &str, rtype: Rtype, answer: &[TestRecord], authority: &[TestRecord]) -> Bytes {
    message(&name(owner), rtype, Rcode::NOERROR, answer, authority)
}

fn nxdomain(owner: &str, answer: &[TestRecord], authority: &[TestRecord]) -> Bytes {
    message(&name(owner), Rtype::A, Rcode::NXDOMAIN, answer, authority)
}

fn judged(world: &World, response: &Bytes) -> (Security, Option<Code>) {
    let (verdict, _) = validate(world, &validator(world), response);
    (verdict.security, verdict.extended_error)
}

const SECURE: (Security, Option<Code>) = (Security::Secure, None);
const INSECURE: (Security, Option<Code>) = (Security::Insecure, None);

fn bogus(code: Code) -> (Security, Option<Code>) {
    (Security::Bogus, Some(code))
}

#[test]
fn a_chain_of_signatures_from_the_trust_anchor_is_secure() {
    let world = world();
    let answer = world
        .zone("example.test.")
        .sign("www.example.test. A 192.0.2.1\nwww.example.test. A 192.0.2.2");
    let response = response("www.example.test.", Rtype::A, &answer, &[]);
    let validator = validator(&world);
    let (verdict, queries) = validate(&world, &validator, &response);
    assert_eq!(
        verdict,
        Verdict { security: Security::Secure, extended_error: None, ttl: 300, limit: None }
    );
    // DNSKEY of the root; DS and DNSKEY of test and of example.test.
    assert_eq!(queries, 5);
    assert_eq!(validate(&world, &validator, &response), (verdict, 0), "the keys are cached");
    // The DS and DNSKEY records have a TTL of one hour.
    assert_eq!(validate_to(&world, &validator, &response, None, NOW + 3_599).1, 0);
    assert_eq!(validate_to(&world, &validator, &response, None, NOW + 3_601).1, 5);
}

#[test]
fn the_ttl_is_limited_by_the_signature() {
    let mut world = world();
    world.zones[2].valid = (NOW - 10, NOW + 40);
    let answer = world.zone("example.test.").sign("www.example.test. A 192.0.2.1");
    let response = response("www.example.test.", Rtype::A, &answer, &[]);
    assert_eq!(validate(&world, &validator(&world), &response).0.ttl, 40);
}

#[test]
fn every_supported_algorithm_is_accepted() {
    for params in
        [GenerateParams::EcdsaP256Sha256, GenerateParams::EcdsaP384Sha384, GenerateParams::Ed25519]
    {
        let mut world = world();
        world.zones[2] = TestZone::new("example.test.", &params);
        let answer = world.zone("example.test.").sign("www.example.test. A 192.0.2.1");
        let response = response("www.example.test.", Rtype::A, &answer, &[]);
        assert_eq!(judged(&world, &response), SECURE, "{params:?}");
    }
}

#[test]
fn zones_without_usable_ds_records_are_unsigned() {
    let answer = records("www.example.test. A 192.0.2.1");
    let response = response("www.example.test.", Rtype::A, &answer, &[]);
    let strong = "11".repeat(32);
    let weak = "11".repeat(20);
    for (ds, code) in [
        // RSA/SHA-1, and an algorithm that does not exist.
        (format!("1 5 2 {strong}"), Code::UNSUPPORTED_DNSKEY_ALGORITHM),
        (format!("1 200 2 {strong}"), Code::UNSUPPORTED_DNSKEY_ALGORITHM),
        // SHA-1, and a digest type that does not exist.
        (format!("1 13 1 {weak}"), Code::UNSUPPORTED_DS_DIGEST_TYPE),
        (format!("1 13 200 {strong}"), Code::UNSUPPORTED_DS_DIGEST_TYPE),
    ] {
        let mut world = world();
        let signed = world.zone("test.").sign(&format!("example.test. DS {ds}"));
        let owner = name("example.test.");
        let response_to_ds = message(&owner, Rtype::DS, Rcode::NOERROR, &signed, &[]);
        world.other.push((owner, Rtype::DS, Some(response_to_ds)));
        assert_eq!(judged(&world, &response), (Security::Insecure, Some(code)), "{ds}");
    }
}

#[test]
fn faults_have_the_extended_error_that_explains_them() {
    let world = world();
    let zone = world.zone("example.test.");
    let good = zone.sign("www.example.test. A 192.0.2.1");
    let of = |answer: &[TestRecord]| {
        judged(&world, &response("www.example.test.", Rtype::A, answer, &[]))
    };
    assert_eq!(of(&good), SECURE);
    assert_eq!(of(&good[..1]), bogus(Code::RRSIGS_MISSING));
    let changed = [records("www.example.test. A 192.0.2.9"), good[1..].to_vec()].concat();
    assert_eq!(of(&changed), bogus(Code::DNSSEC_BOGUS));
    let with = |valid| {
        let zone =
            TestZone { valid, ..TestZone::new("example.test.", &GenerateParams::EcdsaP256Sha256) };
        let mut world = World::new(&[".", "test."]);
        world.zones.push(zone);
        let answer = world.zone("example.test.").sign("www.example.test. A 192.0.2.1");
        // The keys are valid; only the data are not.
        world.zones[2].valid = (NOW - 100, NOW + 100);
        judged(&world, &response("www.example.test.", Rtype::A, &answer, &[]))
    };
    assert_eq!(with((NOW - 20, NOW - 1)), bogus(Code::SIGNATURE_EXPIRED));
    assert_eq!(with((NOW + 1, NOW + 20)), bogus(Code::SIGNATURE_NOT_YET_VALID));
    assert_eq!(with((NOW, NOW)), SECURE);
    // Another zone has signed the records.
    let other = world.zone("other.test.").sign("www.example.test. A 192.0.2.1");
    assert_eq!(of(&other), bogus(Code::RRSIGS_MISSING));
    // A name without signatures below a signed zone.
    let unsigned =
        response("www.other.test.", Rtype::A, &records("www.other.test. A 192.0.2.1"), &[]);
    assert_eq!(judged(&world, &unsigned), bogus(Code::RRSIGS_MISSING));
}

#[test]
fn keys_that_do_not_match_or_are_missing_are_bogus() {
    let answer = |world: &World| {
        let answer = world.zone("example.test.").sign("www.example.test. A 192.0.2.1");
        response("www.example.test.", Rtype::A, &answer, &[])
    };
    let owner = name("example.test.");
    let reply =
        |answer: &[TestRecord]| Some(message(&owner, Rtype::DNSKEY, Rcode::NOERROR, answer, &[]));
    let stranger = TestZone::new("example.test.", &GenerateParams::EcdsaP256Sha256);
    let mut world = world();
    world.other.push((
        owner.clone(),
        Rtype::DNSKEY,
        reply(&stranger.sign_set(&[stranger.dnskey()])),
    ));
    assert_eq!(judged(&world, &answer(&world)), bogus(Code::DNSKEY_MISSING));
    world.other[0].2 = reply(&[]);
    assert_eq!(judged(&world, &answer(&world)), bogus(Code::DNSKEY_MISSING));
    // The keys without a signature.
    world.other[0].2 = reply(&[world.zone("example.test.").dnskey()]);
    assert_eq!(judged(&world, &answer(&world)), bogus(Code::RRSIGS_MISSING));
    // No server answers.
    world.other[0].2 = None;
    assert_eq!(judged(&world, &answer(&world)), bogus(Code::NO_REACHABLE_AUTHORITY));
}

#[test]
fn unsigned_delegations_need_a_proof() {
    let mut world = world();
    let data = records("www.plain.test. A 192.0.2.1");
    let response = response("www.plain.test.", Rtype::A, &data, &[]);
    assert_eq!(judged(&world, &response), INSECURE);
    let owner = name("plain.test.");
    let reply =
        |authority: &[TestRecord]| Some(message(&owner, Rtype::DS, Rcode::NOERROR, &[], authority));
    // No proof; a proof without a signature; a proof that DS records exist.
    world.other.push((owner.clone(), Rtype::DS, reply(&[])));
    assert_eq!(judged(&world, &response), bogus(Code::NSEC_MISSING));
    world.other[0].2 = reply(&records("plain.test. NSEC \\000.plain.test. NS RRSIG NSEC"));
    assert_eq!(judged(&world, &response), bogus(Code::NSEC_MISSING));
    let denial = world.zone("test.").sign("plain.test. NSEC \\000.plain.test. NS DS RRSIG NSEC");
    world.other[0].2 = reply(&denial);
    assert_eq!(judged(&world, &response), bogus(Code::NSEC_MISSING));
    // A proof of the child's side.
    let denial = world.zone("test.").sign("plain.test. NSEC \\000.plain.test. NS SOA RRSIG NSEC");
    world.other[0].2 = reply(&denial);
    assert_eq!(judged(&world, &response), bogus(Code::NSEC_MISSING));
    // The name is not delegated, so its records must be signed.
    let denial = world.zone("test.").sign("plain.test. NSEC \\000.plain.test. A RRSIG NSEC");
    world.other[0].2 = reply(&denial);
    assert_eq!(judged(&world, &response), bogus(Code::RRSIGS_MISSING));
}

#[test]
fn absent_types_need_an_nsec_record_of_the_right_side() {
    let world = world();
    let zone = world.zone("example.test.");
    let of = |owner: &str, rtype, nsec: &str| {
        let authority = zone.sign(&format!("{}\n{nsec}", soa("example.test.")));
        judged(&world, &response(owner, rtype, &[], &authority))
    };
    let www = "www.example.test.";
    assert_eq!(of(www, Rtype::A, "www.example.test. NSEC x.example.test. AAAA"), SECURE);
    assert_eq!(
        of(www, Rtype::A, "www.example.test. NSEC x.example.test. A"),
        bogus(Code::NSEC_MISSING)
    );
    assert_eq!(
        of(www, Rtype::A, "www.example.test. NSEC x.example.test. CNAME"),
        bogus(Code::NSEC_MISSING)
    );
    // The parent's side of a delegation proves nothing about the child's records, except DS.
    assert_eq!(
        of(www, Rtype::A, "www.example.test. NSEC x.example.test. NS"),
        bogus(Code::NSEC_MISSING)
    );
    assert_eq!(of(www, Rtype::DS, "www.example.test. NSEC x.example.test. NS"), SECURE);
    // An empty non-terminal.
    assert_eq!(of(www, Rtype::A, "example.test. NSEC a.www.example.test. SOA"), SECURE);
    // Another name.
    assert_eq!(
        of(www, Rtype::A, "v.example.test. NSEC x.example.test. AAAA"),
        bogus(Code::NSEC_MISSING)
    );
    // A wildcard without records of the type, with and without the proof that the name does not exist.
    let wildcard = "*.example.test. NSEC a.example.test. AAAA";
    let cover = "v.example.test. NSEC x.example.test. AAAA";
    assert_eq!(of(www, Rtype::A, &format!("{wildcard}\n{cover}")), SECURE);
    assert_eq!(of(www, Rtype::A, wildcard), bogus(Code::NSEC_MISSING));
    // The records without signatures.
    let authority =
        records(&format!("{}\nwww.example.test. NSEC x.example.test. AAAA", soa("example.test.")));
    assert_eq!(
        judged(&world, &response(www, Rtype::A, &[], &authority)),
        bogus(Code::NSEC_MISSING)
    );
    assert_eq!(
        judged(&world, &response("www.plain.test.", Rtype::A, &[], &records(&soa("plain.test.")))),
        INSECURE
    );
}

#[test]
fn absent_names_need_two_proofs() {
    let world = world();
    let zone = world.zone("example.test.");
    let of = |nsec: &str| {
        let authority = zone.sign(&format!("{}\n{nsec}", soa("example.test.")));
        judged(&world, &nxdomain("b.www.example.test.", &[], &authority))
    };
    let name_absent = "v.example.test. NSEC x.example.test. A";
    let wildcard_absent = "example.test. NSEC a.example.test. SOA NS";
    assert_eq!(of(&format!("{name_absent}\n{wildcard_absent}")), SECURE);
    assert_eq!(of(name_absent), bogus(Code::NSEC_MISSING));
    assert_eq!(of(wildcard_absent), bogus(Code::NSEC_MISSING));
    // The wildcard exists.
    assert_eq!(
        of(&format!("{name_absent}\n*.example.test. NSEC a.example.test. A")),
        bogus(Code::NSEC_MISSING)
    );
    // The name is below a delegation, or below a DNAME record.
    for types in ["NS", "DNAME"] {
        let below = format!("www.example.test. NSEC x.example.test. {types}\n{wildcard_absent}");
        assert_eq!(of(&below), bogus(Code::NSEC_MISSING), "{types}");
    }
    // The last record of the zone.
    assert_eq!(of(&format!("v.example.test. NSEC example.test. A\n{wildcard_absent}")), SECURE);
    // The next name is before the owner, but not the apex: the record covers the names below the next name.
    let around = "www.example.test. NSEC a.www.example.test. A";
    assert_eq!(of(&format!("{around}\na.www.example.test. NSEC www.example.test. A")), SECURE);
    let beside = format!("v.example.test. NSEC a.example.test. A\n{wildcard_absent}");
    assert_eq!(of(&beside), bogus(Code::NSEC_MISSING));
    // The next name is in another zone.
    let overreaching = format!("v.example.test. NSEC x.other.test. A\n{wildcard_absent}");
    assert_eq!(of(&overreaching), bogus(Code::NSEC_MISSING));
}

#[test]
fn expanded_wildcards_need_the_proof_that_no_closer_name_exists() {
    let world = world();
    let zone = world.zone("example.test.");
    let answer = renamed(zone.sign("*.example.test. A 192.0.2.1"), "b.www.example.test.");
    let of = |authority: &[TestRecord]| {
        judged(&world, &response("b.www.example.test.", Rtype::A, &answer, authority))
    };
    assert_eq!(of(&zone.sign("v.example.test. NSEC x.example.test. A")), SECURE);
    assert_eq!(of(&[]), bogus(Code::NSEC_MISSING));
    // A closer name exists, so this wildcard does not apply.
    assert_eq!(
        of(&zone.sign("a.www.example.test. NSEC c.www.example.test. A")),
        bogus(Code::NSEC_MISSING)
    );
    // A query for the wildcard itself.
    let own = zone.sign("*.example.test. A 192.0.2.1");
    assert_eq!(judged(&world, &response("*.example.test.", Rtype::A, &own, &[])), SECURE);
}

/// Returns an NSEC3 record of the zone `example.test.` that covers or matches names, with the salt `aabb`.
fn nsec3(from: &str, to: &str, iterations: u16, flags: u8, types: &str) -> String {
    format!("{from}.example.test. NSEC3 1 {flags} {iterations} AABB {to} {types}")
}

/// Returns the hash of a name, and the values before and after it.
fn hashes(owner: &str, iterations: u16) -> [String; 3] {
    use domain::base::iana::Nsec3HashAlgorithm;
    use domain::rdata::nsec3::{Nsec3Salt, OwnerHash};
    let salt = Nsec3Salt::from_octets(vec![0xaa, 0xbb]).unwrap();
    let hash: OwnerHash<Vec<u8>> = domain::dnssec::common::nsec3_hash(
        name(owner),
        Nsec3HashAlgorithm::SHA1,
        iterations,
        &salt,
    )
    .unwrap();
    let moved = |by: i8| {
        let mut octets = hash.as_slice().to_vec();
        let last = octets.len() - 1;
        octets[last] = octets[last].wrapping_add_signed(by);
        domain::utils::base32::encode_string_hex(&octets).to_lowercase()
    };
    [moved(-1), moved(0), moved(1)]
}

fn matching(owner: &str, iterations: u16, types: &str) -> String {
    let [_, at, after] = hashes(owner, iterations);
    nsec3(&at, &after, iterations, 0, types)
}

fn covering(owner: &str, iterations: u16, flags: u8) -> String {
    let [before, _, after] = hashes(owner, iterations);
    nsec3(&before, &after, iterations, flags, "A")
}

#[test]
fn nsec3_records_prove_what_nsec_records_prove() {
    let world = world();
    let zone = world.zone("example.test.");
    let signed =
        |proofs: &[String]| zone.sign(&format!("{}\n{}", soa("example.test."), proofs.join("\n")));
    let www = "www.example.test.";
    let no_data =
        |rtype, proofs: &[String]| judged(&world, &response(www, rtype, &[], &signed(proofs)));
    assert_eq!(no_data(Rtype::A, &[matching(www, 1, "AAAA")]), SECURE);
    assert_eq!(no_data(Rtype::A, &[matching(www, 1, "A")]), bogus(Code::NSEC_MISSING));
    assert_eq!(no_data(Rtype::A, &[matching(www, 1, "CNAME")]), bogus(Code::NSEC_MISSING));
    assert_eq!(no_data(Rtype::A, &[matching(www, 1, "NS")]), bogus(Code::NSEC_MISSING));
    assert_eq!(no_data(Rtype::DS, &[matching(www, 1, "NS")]), SECURE);
    let apex = matching("example.test.", 1, "SOA NS");
    let wildcard = matching("*.example.test.", 1, "AAAA");
    let closer = covering(www, 1, 0);
    assert_eq!(no_data(Rtype::A, &[apex.clone(), closer.clone(), wildcard.clone()]), SECURE);
    assert_eq!(no_data(Rtype::A, &[apex.clone(), closer.clone()]), bogus(Code::NSEC_MISSING));
    // Opt-Out: the name may be an unsigned delegation.
    let opt_out = covering(www, 1, 1);
    assert_eq!(no_data(Rtype::DS, &[apex.clone(), opt_out.clone()]), INSECURE);
    let no_name = |proofs: &[String]| judged(&world, &nxdomain(www, &[], &signed(proofs)));
    let no_wildcard = covering("*.example.test.", 1, 0);
    assert_eq!(no_name(&[apex.clone(), closer.clone(), no_wildcard.clone()]), SECURE);
    assert_eq!(no_name(&[apex.clone(), opt_out, no_wildcard.clone()]), INSECURE);
    assert_eq!(no_name(&[apex.clone(), closer.clone()]), bogus(Code::NSEC_MISSING));
    assert_eq!(no_name(&[closer.clone(), no_wildcard.clone()]), bogus(Code::NSEC_MISSING));
    assert_eq!(no_name(&[apex, no_wildcard]), bogus(Code::NSEC_MISSING));
    // The closest encloser is a delegation.
    let delegated = matching("example.test.", 1, "NS");
    assert_eq!(
        no_name(&[delegated, closer.clone(), covering("*.example.test.", 1, 0)]),
        bogus(Code::NSEC_MISSING)
    );
    // An expanded wildcard.
    let answer = renamed(zone.sign("*.example.test. A 192.0.2.1"), www);
    let expanded =
        |proofs: &[String]| judged(&world, &response(www, Rtype::A, &answer, &signed(proofs)));
    assert_eq!(expanded(&[closer]), SECURE);
    assert_eq!(expanded(&[covering(www, 1, 1)]), INSECURE);
    assert_eq!(expanded(&[wildcard]), bogus(Code::NSEC_MISSING));
}

#[test]
fn too_many_iterations_make_a_signed_denial_insecure() {
    let world = world();
    let www = "www.example.test.";
    let of = |iterations: u16, is_signed: bool| {
        let text = format!("{}\n{}", soa("example.test."), matching(www, iterations, "AAAA"));
        let zone = world.zone("example.test.");
        let authority = if is_signed { zone.sign(&text) } else { records(&text) };
        judged(&world, &response(www, Rtype::A, &[], &authority))
    };
    assert_eq!(of(50, true), SECURE);
    let insecure = (Security::Insecure, Some(Code::UNSUPPORTED_NSEC3_ITERATIONS_VALUE));
    assert_eq!(of(51, true), insecure);
    assert_eq!(of(51, false), bogus(Code::NSEC_MISSING));
}

#[test]
fn aliases_are_as_secure_as_their_worst_part() {
    let world = world();
    let sign = |zone: &str, text: &str| world.zone(zone).sign(text);
    let of = |answer: &[TestRecord], authority: &[TestRecord]| {
        judged(&world, &response("a.example.test.", Rtype::A, answer, authority))
    };
    let alias = sign("example.test.", "a.example.test. CNAME b.other.test.");
    let data = sign("other.test.", "b.other.test. A 192.0.2.1");
    assert_eq!(of(&[alias.clone(), data.clone()].concat(), &[]), SECURE);
    assert_eq!(of(&[alias[..1].to_vec(), data.clone()].concat(), &[]), bogus(Code::RRSIGS_MISSING));
    assert_eq!(of(&[alias.clone(), data[..1].to_vec()].concat(), &[]), bogus(Code::RRSIGS_MISSING));
    // The upstream did not follow the alias, and the caller queries the target.
    let unfinished = response("a.example.test.", Rtype::A, &alias, &[]);
    let cut = validate_to(&world, &validator(&world), &unfinished, Some("b.other.test."), NOW).0;
    assert_eq!(cut.security, Security::Secure);
    assert_eq!(of(&alias, &[]), bogus(Code::NSEC_MISSING));
    // The target has no records.
    let denial = sign(
        "other.test.",
        &format!("{}\nb.other.test. NSEC c.other.test. AAAA", soa("other.test.")),
    );
    assert_eq!(of(&alias, &denial), SECURE);
    assert_eq!(of(&alias, &records(&soa("other.test."))), bogus(Code::NSEC_MISSING));
    // The target is in an unsigned zone.
    let alias = sign("example.test.", "a.example.test. CNAME b.plain.test.");
    assert_eq!(of(&[alias.clone(), records("b.plain.test. A 192.0.2.1")].concat(), &[]), INSECURE);
    // Records after the end are not used and not validated.
    let answer =
        [alias, records("b.plain.test. CNAME c.example.test.\nc.example.test. A 192.0.2.1")]
            .concat();
    let cut = response("a.example.test.", Rtype::A, &answer, &[]);
    assert_eq!(
        validate_to(&world, &validator(&world), &cut, Some("c.example.test."), NOW).0.security,
        Security::Insecure
    );
    assert_eq!(judged(&world, &cut), bogus(Code::RRSIGS_MISSING));
}

#[test]
fn dname_records_replace_unsigned_aliases() {
    let world = world();
    let dname = world.zone("example.test.").sign("d.example.test. DNAME other.test.");
    let data = world.zone("other.test.").sign("a.other.test. A 192.0.2.1");
    let of = |parts: &[Vec<TestRecord>]| {
        judged(&world, &response("a.d.example.test.", Rtype::A, &parts.concat(), &[]))
    };
    let cname = records("a.d.example.test. CNAME a.other.test.");
    assert_eq!(of(&[dname.clone(), cname.clone(), data.clone()]), SECURE);
    // A query for the alias itself.
    let both = [dname.clone(), cname.clone()].concat();
    let of_alias = response("a.d.example.test.", Rtype::CNAME, &both, &[]);
    assert_eq!(judged(&world, &of_alias), SECURE);
    assert_eq!(of(&[dname.clone(), data.clone()]), SECURE);
    assert_eq!(of(&[dname[..1].to_vec(), cname, data]), bogus(Code::RRSIGS_MISSING));
}

/// RFC 6672 §5.3.1: the DNAME record determines the alias, with or without a CNAME record.
#[test]
fn aliases_with_another_target_than_dname_are_ignored() {
    let world = world();
    let zone = world.zone("example.test.");
    let dname = zone.sign("d.example.test. DNAME other.test.");
    let forged = records("d.example.test. DNAME other.test.");
    let data = world.zone("other.test.").sign("a.other.test. A 192.0.2.1");
    let of = |rtype, parts: &[Vec<TestRecord>]| {
        judged(&world, &response("a.d.example.test.", rtype, &parts.concat(), &[]))
    };
    let wrong = "a.d.example.test. CNAME b.plain.test.";
    let wrong_data = records("b.plain.test. A 192.0.2.66");
    for cname in [Vec::new(), records(wrong), zone.sign(wrong)] {
        let with = |dname: &[TestRecord]| [dname.to_vec(), cname.clone()];
        assert_eq!(of(Rtype::A, &[with(&dname).concat(), data.clone()]), SECURE);
        assert_eq!(of(Rtype::CNAME, &with(&dname)), SECURE);
        // The wrong target is not followed.
        assert_eq!(of(Rtype::A, &[with(&dname).concat(), wrong_data.clone()]).0, Security::Bogus);
        // A signature of the CNAME record does not replace that of the DNAME record.
        for rtype in [Rtype::A, Rtype::CNAME, Rtype::ANY] {
            let all = [with(&forged).concat(), data.clone()];
            assert_eq!(of(rtype, &all), bogus(Code::RRSIGS_MISSING), "{rtype}");
        }
        // The response is validated up to the target of the DNAME record.
        let all = [dname.clone(), cname, wrong_data.clone()].concat();
        let cut = response("a.d.example.test.", Rtype::A, &all, &[]);
        let to = |end| validate_to(&world, &validator(&world), &cut, Some(end), NOW).0.security;
        assert_eq!(to("a.other.test."), Security::Secure);
        assert_eq!(to("b.plain.test."), Security::Bogus);
    }
}

#[test]
fn unsigned_data_below_a_dname_record_is_bogus() {
    let world = world();
    let dname = world.zone("example.test.").sign("d.example.test. DNAME other.test.");
    let data = world.zone("other.test.").sign("a.other.test. A 192.0.2.1");
    let cname = records("a.d.example.test. CNAME a.other.test.");
    let any = |parts: &[Vec<TestRecord>]| {
        judged(&world, &response("a.d.example.test.", Rtype::ANY, &parts.concat(), &[]))
    };
    assert_eq!(any(&[dname.clone(), cname.clone(), data.clone()]), SECURE);
    let forged = records("a.d.example.test. A 192.0.2.66");
    assert_eq!(any(&[dname, cname, forged, data]), bogus(Code::RRSIGS_MISSING));
}

/// The RCODE of a response to a CNAME query is that of the target (RFC 6604 §3).
#[test]
fn a_name_error_beside_a_dname_record_needs_a_proof() {
    let world = world();
    let dname = world.zone("example.test.").sign("d.example.test. DNAME other.test.");
    let cname = records("a.d.example.test. CNAME a.other.test.");
    let other = world.zone("other.test.");
    let proof = [
        other.sign(&soa("other.test.")),
        other.sign("other.test. NSEC b.other.test. SOA NS RRSIG NSEC"),
    ];
    let of = |authority: &[TestRecord]| {
        let owner = name("a.d.example.test.");
        let answer = [dname.clone(), cname.clone()].concat();
        judged(&world, &message(&owner, Rtype::CNAME, Rcode::NXDOMAIN, &answer, authority))
    };
    assert_eq!(of(&proof.concat()), SECURE);
    assert_eq!(of(&[]).0, Security::Bogus);
}

/// An SOA record of another zone, or an extended RCODE, must not change the verdict on a denial.
#[test]
fn forged_denials_are_bogus() {
    let world = world();
    let zone = world.zone("example.test.");
    let forged = records(&format!(
        "{}\n{}\nx.example.test. NSEC z.example.test. A",
        soa("plain.test."),
        soa("example.test.")
    ));
    // The signature names a signed zone, and is wrong.
    let mut signature = zone.sign("y.example.test. NSEC z.example.test. A")[1..].to_vec();
    let authority = [forged, renamed(std::mem::take(&mut signature), "x.example.test.")].concat();
    for rcode in [Rcode::NOERROR, Rcode::NXDOMAIN] {
        for rtype in [Rtype::A, Rtype::RRSIG] {
            let response = message(&name("www.example.test."), rtype, rcode, &[], &authority);
            let expected = match (rtype, rcode) {
                (Rtype::RRSIG, Rcode::NOERROR) => Security::Insecure,
                _ => Security::Bogus,
            };
            assert_eq!(judged(&world, &response).0, expected, "{rtype} {rcode}");
        }
    }
    // A proof that a type does not exist, with the RCODE NXDOMAIN and an OPT record that extends it.
    let proof = zone
        .sign(&format!("{}\nwww.example.test. NSEC x.example.test. AAAA", soa("example.test.")));
    let response = nxdomain("www.example.test.", &[], &proof);
    assert_eq!(judged(&world, &response), bogus(Code::NSEC_MISSING));
    let mut octets = response.to_vec();
    octets[11] = 1;
    octets.extend(b"\x01a\0\0\x29\x04\xd0\x01\0\0\0\0\0");
    assert_eq!(judged(&world, &Bytes::from(octets)).0, Security::Bogus);
}

/// With Opt-Out, any name may be an unsigned delegation. A damaged denial by the signed zone is bogus nevertheless.
#[test]
fn damaged_denials_with_opt_out_are_bogus() {
    let mut world = world();
    let www = "www.example.test.";
    let proofs = [
        matching("example.test.", 1, "SOA NS"),
        covering(www, 1, 1),
        covering("*.example.test.", 1, 0),
    ];
    let proofs = world.zone("example.test.").sign(&proofs.join("\n"));
    let signed = world.zone("example.test.").sign(&soa("example.test."));
    let unsigned = records(&soa("example.test."));
    let no_ds = [signed.clone(), proofs.clone()].concat();
    let no_ds = message(&name(www), Rtype::DS, Rcode::NOERROR, &[], &no_ds);
    world.other.push((name(www), Rtype::DS, Some(no_ds)));
    let of = |parts: &[Vec<TestRecord>]| judged(&world, &nxdomain(www, &[], &parts.concat()));
    assert_eq!(of(&[signed.clone(), proofs.clone()]), INSECURE);
    assert_eq!(of(&[unsigned, proofs.clone()]).0, Security::Bogus);
    assert_eq!(of(&[signed, proofs[..2].to_vec()]).0, Security::Bogus);
    // The unsigned zone itself denies the name.
    assert_eq!(of(&[records(&soa(www))]), INSECURE);
}

/// The RCODE is not signed: genuine records with the RCODE NXDOMAIN are no denial.
#[test]
fn genuine_answers_with_another_rcode_are_bogus() {
    let world = world();
    let zone = world.zone("example.test.");
    let answer = zone.sign("www.example.test. A 192.0.2.1");
    let soa = records(&soa("example.test."));
    let dname = zone.sign("d.example.test. DNAME other.test.");
    let proof = zone.sign("www.example.test. NSEC x.example.test. AAAA");
    for rcode in [Rcode::NXDOMAIN, Rcode::YXDOMAIN, Rcode::REFUSED] {
        let positive = message(&name("www.example.test."), Rtype::A, rcode, &answer, &soa);
        assert_eq!(judged(&world, &positive).0, Security::Bogus, "{rcode}");
        let contradicted =
            [dname.clone(), records("a.d.example.test. CNAME b.plain.test.")].concat();
        let alias = message(&name("a.d.example.test."), Rtype::A, rcode, &contradicted, &[]);
        assert_eq!(judged(&world, &alias).0, Security::Bogus, "{rcode}");
    }
    let refused = message(&name("www.example.test."), Rtype::A, Rcode::REFUSED, &[], &proof);
    assert_eq!(judged(&world, &refused).0, Security::Bogus);
    // ANY: the name has records.
    let any = response("www.example.test.", Rtype::ANY, &[], &proof);
    assert_eq!(judged(&world, &any).0, Security::Bogus);
}

/// A wildcard alias of a signed zone can lead to an unsigned zone, with the SOA record of the latter.
#[test]
fn a_wildcard_alias_to_an_unsigned_zone_is_insecure() {
    let world = world();
    let zone = world.zone("example.test.");
    let alias = renamed(zone.sign("*.example.test. CNAME x.plain.test."), "a.example.test.");
    let authority =
        [zone.sign("example.test. NSEC b.example.test. A"), records(&soa("plain.test."))].concat();
    let response = response("a.example.test.", Rtype::A, &alias, &authority);
    assert_eq!(judged(&world, &response), INSECURE);
}

/// A wildcard alias at the name of a delegation must not hide the delegation from later queries.
#[test]
fn expanded_aliases_do_not_hide_a_delegation() {
    let mut world = world();
    let alias = renamed(world.zone("test.").sign("*.test. CNAME www.test."), "plain.test.");
    let owner = name("plain.test.");
    let forged = message(&owner, Rtype::DS, Rcode::NOERROR, &alias, &[]);
    let answer =
        response("www.plain.test.", Rtype::A, &records("www.plain.test. A 192.0.2.1"), &[]);
    let validator = validator(&world);
    world.other.push((owner, Rtype::DS, Some(forged)));
    assert_eq!(validate(&world, &validator, &answer).0.security, Security::Bogus);
    world.other.clear();
    let later = NOW + 6;
    assert_eq!(
        validate_to(&world, &validator, &answer, None, later).0.security,
        Security::Insecure
    );
}

/// With a trust anchor below the root, an unsigned DNAME record above it must not apply.
#[test]
fn aliases_above_the_trust_anchor_do_not_apply() {
    let world = World::new(&["test.", "example.test."]);
    let answer = records(". DNAME evil.\nwww.example.test.evil. A 192.0.2.66");
    let response = response("www.example.test.", Rtype::A, &answer, &[]);
    assert_eq!(judged(&world, &response), bogus(Code::RRSIGS_MISSING));
}

/// AD covers all records in the authority section that say what does not exist.
#[test]
fn unsigned_denials_beside_a_secure_answer_are_bogus() {
    let world = world();
    let zone = world.zone("example.test.");
    let answer = zone.sign("www.example.test. A 192.0.2.1");
    let extra = records("x.example.test. NSEC z.example.test. A");
    let response = response("www.example.test.", Rtype::A, &answer, &extra);
    assert_eq!(judged(&world, &response), bogus(Code::DNSSEC_BOGUS));
}

#[test]
fn malformed_service_parameters_are_validated_as_received() {
    let world = world();
    let text = "www.plain.test. HTTPS \\# 11 0001 00 0004 0000 0001 0000";
    let https = records(text);
    let response = response("www.plain.test.", Rtype::HTTPS, &https, &[]);
    assert_eq!(judged(&world, &response), INSECURE);
}

#[test]
fn names_without_a_trust_anchor_are_indeterminate() {
    let world = World::new(&["test.", "example.test."]);
    let answer = records("www.example. A 192.0.2.1");
    let outside = response("www.example.", Rtype::A, &answer, &[]);
    assert_eq!(
        judged(&world, &outside),
        (Security::Indeterminate, Some(Code::DNSSEC_INDETERMINATE))
    );
}

#[test]
fn negative_trust_anchors_turn_validation_off_below_them() {
    let world = world();
    let negative = [
        (Name::bytes_from_str("Example.test.").unwrap(), None),
        (Name::bytes_from_str("other.test.").unwrap(), Some(u64::from(NOW))),
        (Name::bytes_from_str("plain.test.").unwrap(), Some(u64::from(NOW) + 90)),
    ];
    let validator =
        Validator::new(anchors(&world).with_negative(negative), Limits::default(), 1 << 20);
    let of = |owner: &str| {
        let answer = records(&format!("{owner} A 192.0.2.1"));
        validate(&world, &validator, &response(owner, Rtype::A, &answer, &[])).0
    };
    let unchecked = of("www.example.test.");
    assert_eq!(unchecked.security, Security::Unchecked);
    assert_eq!(unchecked.extended_error, Some(Code::NEGATIVE_TRUST_ANCHOR));
    // This one has expired.
    assert_eq!(of("www.other.test.").security, Security::Bogus);
    // An answer is not stored for longer than the negative trust anchor is valid.
    let limited = of("www.plain.test.");
    assert_eq!((limited.security, limited.ttl), (Security::Unchecked, 90));
}

/// Many RRsets with a wrong and a right signature each: the limit applies to the response.
#[test]
fn failed_checks_are_limited_for_the_whole_response() {
    let world = world();
    let zone = world.zone("example.test.");
    let links = |count: usize| {
        let link = |n: usize| {
            let text = format!("a{n}.example.test. CNAME a{}.example.test.", n + 1);
            let mut set = zone.sign(&text);
            let mut wrong = set[1].clone();
            if let ZoneRecordData::Rrsig(signature) = wrong.data_mut() {
                let mut octets = signature.signature().clone();
                octets[0] ^= 1;
                signature.set_signature(octets);
            }
            set.insert(1, wrong);
            set
        };
        let answer: Vec<_> = (0..count).flat_map(link).collect();
        let response = response("a0.example.test.", Rtype::A, &answer, &[]);
        let end = format!("a{count}.example.test.");
        validate_to(&world, &validator(&world), &response, Some(&end), NOW).0
    };
    assert_eq!(links(7).security, Security::Secure);
    // After the eighth failed check, no further check begins.
    let verdict = links(8);
    assert_eq!((verdict.security, verdict.limit), (Security::Bogus, Some(Limit::FailedChecks)));
}

#[test]
fn eleven_aliases_over_three_zones_validate_with_a_cold_cache() {
    let world = world();
    let zones = ["example.test.", "other.test.", "test."];
    let owner = |n: usize| format!("a{n}.{}", zones[n % 3]);
    let link =
        |n: usize| world.zone(zones[n % 3]).sign(&format!("{} CNAME {}", owner(n), owner(n + 1)));
    let mut answer: Vec<_> = (0..11).flat_map(link).collect();
    answer.extend(world.zone(zones[11 % 3]).sign(&format!("{} A 192.0.2.1", owner(11))));
    let response = response(&owner(0), Rtype::A, &answer, &[]);
    assert_eq!(judged(&world, &response), SECURE);
}

#[test]
fn time_and_queries_are_limited() {
    let world = world();
    let answer = world.zone("example.test.").sign("www.example.test. A 192.0.2.1");
    let octets = response("www.example.test.", Rtype::A, &answer, &[]);
    let few = Limits { queries: 2, ..Limits::default() };
    let strict = Validator::new(anchors(&world), few, 1 << 20);
    assert_eq!(validate(&world, &strict, &octets).0.limit, Some(Limit::Queries));
    let validator = validator(&world);
    validate(&world, &validator, &octets);
    let mut validation = Validation::new(octets.clone(), None);
    let progress = validation.step(&validator, NOW.into(), &|| true);
    let crate::Progress::Ended(verdict) = progress else { panic!("the keys are cached") };
    assert_eq!(verdict.limit, Some(Limit::Time));
    // A limit does not make the zone bogus.
    assert_eq!(judged(&world, &octets), SECURE);
}

#[test]
fn trust_anchors_are_read_from_zone_file_lines() {
    assert_eq!(
        TrustAnchors::root().closest(&Name::bytes_from_str("a.test").unwrap()).unwrap().ds.len(),
        2
    );
    let digest = "11".repeat(32);
    for (text, line) in [
        ("", 1),
        ("; only a comment", 1),
        (". IN DS 20326 8 2", 1),
        (&format!(". IN DS 20326 8 2 {digest}\n. IN A 192.0.2.1"), 2),
        (&format!("\n. DS 70000 8 2 {digest}"), 2),
        (&format!(". DS 1 8 1 {}", &digest[..40]), 1),
        (&format!(". DS 1 5 2 {digest}"), 1),
        (&format!(". DS 1 8 9 {digest}"), 1),
        (". IN DNSKEY 257 3 8 !!", 1),
    ] {
        assert_eq!(TrustAnchors::from_lines(text).unwrap_err().line, line, "{text}");
    }
    let text = format!(
        "test. 3600 IN DS 1 13 2 {digest} ; a comment\n\ntest IN DNSKEY 257 3 13 AAAA AAAA"
    );
    let anchors = TrustAnchors::from_lines(&text).unwrap();
    let anchor = anchors.closest(&Name::bytes_from_str("www.test").unwrap()).unwrap();
    assert_eq!((anchor.ds.len(), anchor.keys.len()), (1, 1));
}

/// Public key of the root zone of 2017 (tag 20326).
const ROOT_KEY: &str = "\
AwEAAaz/tAm8yTn4Mfeh5eyI96WSVexTBAvkMgJzkKTOiW1vkIbzxeF3+/4RgWOq7HrxRixHlFlExOLAJr5emLvN7SWXgnLh4+B5xQlNVz8Og8\
kvArMtNROxVQuCaSnIDdD5LKyWbRd2n9WGe2R8PzgCmr3EgVLrjyBxWezF0jLHwVN8efS3rCj/EWgvIWgb9tarpVUDK/b58Da+sqqls3eNbuv7\
pr+eoZG+SrDK6nWeL3c6H5Apxz7LjVc1uTIdsIXxuOLYA4/ilBmSVIzuDWfdRUfhHdY6+cn8HFRm+2hM8AnXGXws9555KrUB5qihylGa8subX2\
Nn6UwNR1AkUTV74bU=";

#[test]
fn built_in_keys_of_the_root_are_recognized() {
    let ds = |tag: u16, digest: &str| format!(". IN DS {tag} 8 2 {digest}\n");
    let first = ds(19036, "49aac11d7b6f6446702e54a1607371607a1a41855200fd2ce1cdde32f24e8fb5");
    let second = ds(20326, "E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D");
    let key = |flags: u16| format!(". 172800 IN DNSKEY {flags} 3 8 {ROOT_KEY}\n");
    // The form of a file that Unbound writes.
    let tracked = format!(
        "; autotrust trust anchor file\n;;id: . 1\n.\t86400\tIN\tDNSKEY\t257 3 8 {ROOT_KEY} ;{{id = 20326 (ksk), size \
         = 2048b}} ;;state=2 [  VALID  ] ;;count=0 ;;lastchange=1 ;;Thu Jan  1 00:00:01 1970\n"
    );
    let other = "test. IN DS 1 13 2 ".to_owned() + &"11".repeat(32);
    let cases = [
        (first.clone(), true, true),
        (first + &second, true, true),
        (key(257), true, true),
        (tracked, true, true),
        // The revoked key.
        (key(385), false, true),
        (ds(20326, &"11".repeat(32)), false, true),
        (second + &other, false, true),
        (other, false, false),
    ];
    for (text, are_built_in, has_root) in cases {
        let anchors = TrustAnchors::from_lines(&text).unwrap();
        assert_eq!(
            (anchors.are_built_in(), anchors.has_root()),
            (are_built_in, has_root),
            "{text}"
        );
    }
    assert!(TrustAnchors::root().are_built_in());
}

#[test]
fn trust_anchors_are_read_from_the_xml_file_of_iana() {
    let digest = "E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D";
    let key = |tag: u16, times: &str| {
        format!(
            "<KeyDigest id=\"K\" {times}>\n<KeyTag>{tag}</KeyTag>\n<Algorithm>8</Algorithm>\n<DigestType>2</DigestType>\n\
             <Digest>{digest}</Digest>\n</KeyDigest>\n"
        )
    };
    let file = |keys: &str| {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<TrustAnchor id=\"X\" source=\"s\">\n<Zone>.</Zone>\n{keys}</TrustAnchor>\n"
        )
    };
    let over = "validFrom=\"2010-07-15T00:00:00+00:00\" validUntil=\"2019-01-11T00:00:00+00:00\"";
    let valid = "validFrom=\"2017-02-02T00:00:00+00:00\"";
    let later = "validFrom=\"2090-01-01T00:00:00+00:00\"";
    let all = file(&(key(19036, over) + &key(20326, valid) + &key(3, later)));
    let anchors = TrustAnchors::from_xml(&all, NOW.into()).unwrap();
    let anchor = anchors.closest(&Name::root_bytes()).unwrap();
    assert_eq!(anchor.ds.iter().map(|ds| ds.key_tag()).collect::<Vec<_>>(), [20326]);
    for (text, line) in [
        (file(&key(19036, over)), 2),
        (file(&key(1, "validFrom=\"yesterday\"")), 4),
        (file("<KeyDigest><KeyTag>1</KeyTag></KeyDigest>"), 4),
        ("<html>\n</html>".into(), 1),
        ("<TrustAnchor>\n<Zone>".into(), 1),
    ] {
        assert_eq!(TrustAnchors::from_xml(&text, NOW.into()).unwrap_err().line, line, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_octets_do_not_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        let world = World::new(&["example."]);
        let octets = Bytes::from(octets);
        prop_assert_ne!(validate(&world, &validator(&world), &octets).0.security, Security::Secure);
    }

    /// A change of any octet of a signed record makes the response bogus or unreadable, except for TTLs and letter case.
    #[test]
    fn changed_octets_are_detected(at in 12_usize..400, bit in 0..8_u8) {
        let world = World::new(&["example."]);
        let zone = world.zone("example.");
        let answer = zone.sign("www.example. A 192.0.2.1");
        let authority = zone.sign("ns.example. NS a.ns.example.");
        let good = response("www.example.", Rtype::A, &answer, &authority);
        let mut octets = good.to_vec();
        let at = 12 + at % (octets.len() - 12);
        octets[at] ^= 1 << bit;
        let changed = Bytes::from(octets);
        let (verdict, _) = validate(&world, &validator(&world), &changed);
        if verdict.security == Security::Secure {
            let data = |octets: &Bytes| {
                let message = domain::base::Message::from_octets(octets.clone()).unwrap();
                let question = message.sole_question().unwrap();
                let records = message.answer().unwrap().limit_to::<domain::rdata::A>();
                let records: Vec<_> = records.map(|record| record.unwrap().into_data()).collect();
                (question.qname().to_string().to_lowercase(), question.qtype(), records)
            };
            prop_assert_eq!(data(&changed), data(&good));
        }
    }
}
