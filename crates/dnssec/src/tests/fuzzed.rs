//! Responses that the differential fuzzer (`cargo xtask dnssec-fuzz`) has found, in short form. Unbound and delv agree on
//! each of them.

use super::*;

const WILDCARD_ABSENT: &str = "example.test. NSEC a.example.test. SOA NS";

/// Returns the verdict on a denial of `b.www.example.test.` with these records and an SOA record.
fn absent(world: &World, records: &str) -> (Security, Option<Code>) {
    let zone = world.zone("example.test.");
    let authority = zone.sign(&format!("{}\n{records}", soa("example.test.")));
    judged(world, &nxdomain("b.www.example.test.", &[], &authority))
}

#[test]
fn only_an_ancestor_is_the_next_name_of_the_last_record() {
    let world = world();
    for (next, expected) in [
        ("example.test.", SECURE),
        ("d.example.test.", bogus(Code::NSEC_MISSING)),
        ("*.example.test.", bogus(Code::NSEC_MISSING)),
        ("test.", SECURE),
    ] {
        let last = format!("v.example.test. NSEC {next} A\n{WILDCARD_ABSENT}");
        assert_eq!(absent(&world, &last), expected, "{next}");
    }
}

#[test]
fn a_name_at_the_end_of_an_nsec_record_is_not_absent() {
    let world = world();
    let cover = "v.example.test. NSEC x.example.test. A";
    for (next, expected) in [
        ("a.example.test.", SECURE),
        ("b.www.example.test.", bogus(Code::NSEC_MISSING)),
        ("a.b.www.example.test.", bogus(Code::NSEC_MISSING)),
    ] {
        let records = format!("{cover}\nexample.test. NSEC {next} SOA NS");
        assert_eq!(absent(&world, &records), expected, "{next}");
    }
}

#[test]
fn nsec3_records_with_hashes_of_another_length_are_ignored() {
    let world = world();
    let encloser = matching("example.test.", 0, "NS SOA");
    let wildcard = covering("*.example.test.", 0, 0);
    let [before, _, after] = hashes("www.example.test.", 0);
    // 32 digits are 20 octets, and 29 digits are 18 octets.
    for (from, to) in [(&before[..], &after[..29]), (&before[..29], &after[..])] {
        let cover = nsec3(from, to, 0, 0, "A");
        let all = format!("{encloser}\n{cover}\n{wildcard}");
        assert_eq!(absent(&world, &all), bogus(Code::NSEC_MISSING), "{from} {to}");
    }
    let cover = nsec3(&before, &after, 0, 0, "A");
    assert_eq!(absent(&world, &format!("{encloser}\n{cover}\n{wildcard}")), SECURE);
}

#[test]
fn each_nsec3_record_of_an_rrset_counts() {
    let world = world();
    let zone = world.zone("example.test.");
    let [_, at, after] = hashes("www.example.test.", 0);
    let two = [nsec3(&at, &after, 1, 0, "AAAA"), nsec3(&at, &after, 0, 0, "AAAA")].join("\n");
    // Only the second record has the hash of the name with its parameters.
    let authority = zone.sign(&format!("{}\n{two}", soa("example.test.")));
    let of = |rtype| judged(&world, &response("www.example.test.", rtype, &[], &authority));
    assert_eq!(of(Rtype::A), SECURE);
    assert_eq!(of(Rtype::AAAA), bogus(Code::NSEC_MISSING));
}

#[test]
fn opt_out_applies_to_all_nsec3_records_of_an_rrset() {
    let world = world();
    let [before, _, after] = hashes("www.example.test.", 0);
    let cover = |flags| nsec3(&before, &after, 0, flags, "A");
    let rest =
        [matching("example.test.", 0, "NS SOA"), covering("*.example.test.", 0, 0)].join("\n");
    assert_eq!(absent(&world, &format!("{}\n{rest}", cover(0))), SECURE);
    assert_eq!(absent(&world, &format!("{}\n{}\n{rest}", cover(0), cover(1))), INSECURE);
}

#[test]
fn ds_and_dnskey_records_with_another_rcode_are_bogus() {
    for (rtype, code) in [(Rtype::DS, Code::DNSSEC_BOGUS), (Rtype::DNSKEY, Code::DNSKEY_MISSING)] {
        let mut world = world();
        let (owner, zone) = (name("example.test."), world.zone("example.test."));
        let answer = zone.sign("www.example.test. A 192.0.2.1");
        let genuine = match rtype {
            Rtype::DS => world.zone("test.").sign_set(&[zone.ds()]),
            _ => zone.sign_set(&[zone.dnskey()]),
        };
        let denied = message(&owner, rtype, Rcode::NXDOMAIN, &genuine, &[]);
        world.other.push((owner, rtype, Some(denied)));
        let response = response("www.example.test.", Rtype::A, &answer, &[]);
        assert_eq!(judged(&world, &response), bogus(code), "{rtype}");
    }
}

#[test]
fn signatures_without_records_in_a_denial_are_bogus() {
    let world = world();
    let zone = world.zone("example.test.");
    let soa = zone.sign(&soa("example.test."));
    let proof = zone.sign("www.example.test. NSEC x.example.test. AAAA");
    let of = |soa: &[TestRecord]| {
        let authority = [soa, &proof[..]].concat();
        judged(&world, &response("www.example.test.", Rtype::A, &[], &authority))
    };
    assert_eq!(of(&soa), SECURE);
    assert_eq!(of(&soa[1..]), bogus(Code::DNSSEC_BOGUS));
}

#[test]
fn an_soa_record_signed_by_the_zone_above_is_bogus() {
    let world = world();
    let proof = world.zone("example.test.").sign("www.example.test. NSEC x.example.test. AAAA");
    for (signer, expected) in [("example.test.", SECURE), ("test.", bogus(Code::RRSIGS_MISSING))] {
        let soa = world.zone(signer).sign(&soa("example.test."));
        let authority = [soa, proof.clone()].concat();
        let response = response("www.example.test.", Rtype::A, &[], &authority);
        assert_eq!(judged(&world, &response), expected, "{signer}");
    }
}

#[test]
fn an_soa_record_of_a_wildcard_above_the_zone_is_bogus() {
    let world = world();
    let zone = world.zone("example.test.");
    let proof = zone.sign("www.example.test. NSEC x.example.test. AAAA");
    let expanded = soa("example.test.").replacen("example.test.", "*.test.", 1);
    let expanded = renamed(zone.sign(&expanded), "example.test.");
    let response = response("www.example.test.", Rtype::A, &[], &[expanded, proof].concat());
    assert_eq!(judged(&world, &response), bogus(Code::DNSSEC_BOGUS));
}

#[test]
fn two_aliases_at_one_name_are_bogus() {
    let world = world();
    let zone = world.zone("example.test.");
    for rtype in ["CNAME", "DNAME"] {
        let two = format!("d.example.test. {rtype} a.test.\nd.example.test. {rtype} b.test.");
        let queried = rtype.parse().unwrap();
        let response = response("d.example.test.", queried, &zone.sign(&two), &[]);
        assert_eq!(judged(&world, &response), bogus(Code::DNSSEC_BOGUS), "{rtype}");
    }
}

#[test]
fn incomplete_proofs_with_opt_out_and_without_soa_are_bogus() {
    let mut world = world();
    // The proof that the name has no DS record permits an unsigned delegation.
    let encloser = matching("example.test.", 0, "NS SOA");
    let cover = covering("www.example.test.", 0, 1);
    let denial = world.zone("example.test.").sign(&format!("{encloser}\n{cover}"));
    let owner = name("www.example.test.");
    let reply = message(&owner, Rtype::DS, Rcode::NOERROR, &[], &denial);
    world.other.push((owner, Rtype::DS, Some(reply)));
    let of = |authority: &[TestRecord]| {
        judged(&world, &response("www.example.test.", Rtype::A, &[], authority))
    };
    assert_eq!(of(&[]), INSECURE);
    assert_eq!(of(&records(&soa("www.example.test."))), INSECURE);
    // This proof of the signed zone is incomplete.
    let proof = world.zone("example.test.").sign(&encloser);
    assert_eq!(of(&proof), bogus(Code::NSEC_MISSING));
    let child = [records(&soa("www.example.test.")), proof].concat();
    assert_eq!(of(&child), INSECURE);
}

#[test]
fn owners_of_nsec3_records_are_hashes() {
    let world = world();
    let encloser = matching("example.test.", 0, "NS SOA");
    let proof = [covering("www.example.test.", 0, 0), covering("*.example.test.", 0, 0)];
    let proof = format!("{encloser}\n{}", proof.join("\n"));
    assert_eq!(absent(&world, &proof), SECURE);
    let (_, data) = encloser.split_once(' ').unwrap();
    for owner in ["0.a.example.test.", "a.example.test."] {
        let more = format!("{proof}\n{owner} {data}");
        assert_eq!(absent(&world, &more), bogus(Code::DNSSEC_BOGUS), "{owner}");
    }
}

#[test]
fn signatures_of_the_type_of_the_question_have_records() {
    let world = world();
    let zone = world.zone("example.test.");
    let denial = format!("{}\nwww.example.test. NSEC x.example.test. A", soa("example.test."));
    let denial = zone.sign(&denial);
    let of = |rtype, authority: &[_]| {
        judged(&world, &response("www.example.test.", rtype, &[], authority))
    };
    assert_eq!(of(Rtype::AAAA, &denial), SECURE);
    for (rtype, record, expected) in [
        (Rtype::AAAA, "www.example.test. AAAA 2001:db8::1", bogus(Code::DNSSEC_BOGUS)),
        (Rtype::AAAA, "www.example.test. A 192.0.2.1", SECURE),
    ] {
        let mut authority = denial.clone();
        authority.push(zone.sign(record).pop().unwrap());
        assert_eq!(of(rtype, &authority), expected, "{record}");
    }
}
