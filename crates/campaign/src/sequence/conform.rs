//! Correctness of a DUT's answers: the checks of `dns64bench conform`, by RFC section. A high rate
//! has little value if the answers are wrong.
//!
//! ```text
//! AuthDNS with the names of checks ─► trust anchors ─► the DUT's configuration, in each Variant
//!      └─► status socket ─► dns64bench conform ─► Report ─► journal ─┐
//!                                    comparison of all DUTs ◄── one Report for each DUT
//! ```
//!
//! A variant is a configuration of the DUT. All checks run with the usual variant. With any other
//! variant, only those checks run whose result depends on the special setting of that variant. Each
//! variant is a separate measurement point, so that an interrupted run resumes at the next variant.

use std::time::Duration;

use hosts::servers::Variant;
use method::set::Repeats;
use tester::measurer::plan::TrialPlan;
use units::Qps;

use crate::plan::servers::CHECKS;
use crate::plan::{AtPlace, Cores, DutPlan, Plan, Point};
use crate::record::Step;
use crate::sequence::measure::{Measure, PaperItem};
use crate::sequence::replay::Recorded;
use crate::sequence::steps::{ConformPlan, Task, TrialSequence};

/// Placeholder for the rate, because a check has no rate.
const NO_RATE: Qps = Qps(1);
/// Assumed duration of all checks of a DUT. This duration is long because many checks wait for a
/// timeout.
const ASSUMED: Duration = Duration::from_secs(90);
/// Assumed duration of the checks in one special variant of the DUT's configuration. Most of this
/// time is spent starting the server.
const ASSUMED_OF_VARIANT: Duration = Duration::from_secs(5);

/// The conformance checks, which a plan requests with the key `conform` in `[measure]`.
pub struct ConformMeasure;

impl Measure for ConformMeasure {
    fn name(&self) -> &'static str {
        "conform"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let Some(dut) = dut.filter(|dut| plan.keys_of(dut).conform) else { return Vec::new() };
        // The correctness of answers does not depend on the number of cores, so a single core count
        // is enough.
        let place = Cores::first(plan.cores_of(dut)[0]);
        // The operator's configuration file must not be changed, so a DUT with such a file has no
        // variants.
        let variants = match dut.config {
            Some(_) => vec![Variant::Usual],
            None => dut.driver.variants(plan.trial.prefix),
        };
        let at = |variant| AtPlace { dut: dut.name().into(), place: place.clone(), variant };
        variants.into_iter().map(|variant| Point::Conform(at(variant))).collect()
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        let is_checked = plan.duts.iter().any(|dut| plan.keys_of(dut).conform);
        if is_checked && plan.auths().any(|auth| auth.name() == CHECKS) {
            return Err(format!(
                "[measure] conform: the AuthDNS name {CHECKS} is reserved for the checks; use another name"
            ));
        }
        Ok(())
    }

    fn effort(&self, _: &Plan, point: &Point) -> (u32, Duration) {
        let is_usual = point.variant().is_none_or(Variant::is_usual);
        (1, if is_usual { ASSUMED } else { ASSUMED_OF_VARIANT })
    }

    fn sequence(&self, _: &Recorded<'_>, _: &Point) -> Option<TrialSequence> {
        Some(TrialSequence::Repeats(Repeats::new(NO_RATE, 1, 0)))
    }

    fn restarts_servers(&self) -> bool {
        true
    }

    fn repeats_deaths(&self) -> bool {
        false
    }

    fn task(&self, plan: &Plan, step: &Step, base: TrialPlan) -> Task {
        let name = step.point.dut().unwrap_or_default();
        // An operator's configuration file is not parsed, so it is unknown whether the DUT
        // validates.
        let ours = plan.dut(name).filter(|dut| dut.config.is_none());
        let can_validate = ours.and_then(|dut| dut.driver.validates());
        let usual = Variant::Usual;
        let variant = step.point.variant().unwrap_or(&usual);
        let depends = |aspect| {
            conform::checks::all().filter(move |check| check.depends_on(aspect)).map(|c| c.id)
        };
        Task::Conform(ConformPlan {
            server: base.server,
            name: name.to_owned(),
            prefixes: variant.prefixes(plan.trial.prefix),
            validates: can_validate.map(|can| can && *variant != Variant::NoValidation),
            excluded: variant.excluded(),
            only: variant.aspect().map(|aspect| depends(aspect).collect()).unwrap_or_default(),
        })
    }

    fn paper_items(&self, _: &Plan, _: &Point) -> Vec<PaperItem> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::sequence::steps::FarView;

    use super::*;

    #[test]
    fn a_dut_is_checked_once_if_the_plan_asks_for_it() {
        let text = "name = 'x'\n[measure]\nconform = true\ncores = [2, 1]\n[[dut]]\ndriver = 'unbound'\n\
                    [[dut]]\ndriver = 'bind'\nmeasure = { conform = false }\n";
        let plan = Plan::parse(text, Path::new("p.toml")).unwrap();
        let points: Vec<String> =
            plan.points().iter().filter(|p| p.is_checked()).map(ToString::to_string).collect();
        assert_eq!(
            (points[0].as_str(), points[1].as_str()),
            ("Unbound, 2 cores, conform", "Unbound, 2 cores, conform with the prefix 3fff:64::/32")
        );
        assert_eq!(points.len(), 8, "six lengths, and without validation: {points:?}");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own.conf"), "num-threads: {threads}").unwrap();
        let own = text.replacen("'unbound'", "'unbound'\nconfig = 'own.conf'", 1);
        let own = Plan::parse(&own, &folder.path().join("p.toml")).unwrap();
        let checked = own.points().iter().filter(|point| point.is_checked()).count();
        assert_eq!(checked, 1, "an operator's file has no variants");
        let clash = format!("{text}[[authdns]]\ndriver = 'nsd'\nname = 'conform'\n");
        let error = Plan::parse(&clash, Path::new("p.toml")).unwrap_err().to_string();
        assert!(error.contains("use another name"), "{error}");
    }

    #[test]
    fn the_tester_gets_the_path_of_the_status_socket() {
        let plan = ConformPlan {
            server: "[2001:2::1]:53".parse().unwrap(),
            name: "-x".into(),
            prefixes: ["2001:db8::/64", "64:ff9b::/96"].map(|text| text.parse().unwrap()).into(),
            validates: Some(false),
            excluded: Some("3fff:bad::/32"),
            only: vec!["a-1", "b"],
        };
        let view = FarView {
            status: "ssh:me@auth:/run/auth-1".into(),
            ssh_config: Some("/etc/own".into()),
        };
        let words = plan.arguments(Some(view)).join(" ");
        assert_eq!(
            words,
            "conform --server=[2001:2::1]:53 --name=-x --expect-prefix=2001:db8::/64 --expect-prefix=64:ff9b::/96 \
             --zone=conform.example --validates=false --excludes=3fff:bad::/32 --auth-status=ssh:me@auth:/run/auth-1 \
             --ssh-config=/etc/own \
             --only=a-1,b --forwards-all --json --quiet"
        );
        assert!(!plan.arguments(None).join(" ").contains("--auth-status"));
    }
}
