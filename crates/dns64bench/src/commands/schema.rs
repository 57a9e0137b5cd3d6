//! `schema`: JSON Schemas (draft 2020-12) of what is read and written, made from the types that do
//! it.

use std::process::ExitCode;

use campaign::comparison::Comparison;
use campaign::environment::Environment;
use campaign::plan::Plan;
use campaign::results::Results;
use campaign::search::SearchResult;
use conform::outcome::Checked;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema as Made};
use tester::authdns::counters::AuthCounters;
use tester::client::closed_loop::ClosedLoopResult;
use tester::client::experiments::Experiments;
use tester::measurer::burst::SendCost;
use tester::measurer::merge::Merged;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;

use super::quickstart::QuickstartResult;
use super::reference_dut::Served;
use super::self_test::SelfTestResult;
use crate::args::Schema;
use crate::output::{
    Failure, MaybeWithEnvironment, Outcome, SCHEMA_VERSION, Versioned, WithEnvironment,
};

/// What a command prints that measures.
type Printed<T> = Versioned<WithEnvironment<T>>;

/// A schema: its name, the version of the object, and how it is made.
type Entry = (&'static str, u32, fn() -> Made);

/// All schemas. A journal's is that of each of its lines.
const ALL: [Entry; 21] = [
    ("trial", SCHEMA_VERSION, written::<Versioned<MaybeWithEnvironment<TrialResult>>>),
    ("merge", SCHEMA_VERSION, written::<Versioned<Merged>>),
    ("search", SCHEMA_VERSION, written::<Printed<SearchResult>>),
    ("self-test", SCHEMA_VERSION, written::<Printed<SelfTestResult>>),
    ("closed-loop", SCHEMA_VERSION, written::<Printed<ClosedLoopResult>>),
    ("dns64perf2", SCHEMA_VERSION, written::<Printed<Experiments>>),
    ("quickstart", SCHEMA_VERSION, written::<Printed<QuickstartResult>>),
    ("conform", SCHEMA_VERSION, written::<Versioned<Checked>>),
    ("check", SCHEMA_VERSION, written::<Versioned<Environment>>),
    ("auth", SCHEMA_VERSION, written::<Versioned<AuthCounters>>),
    ("reference-dut", SCHEMA_VERSION, written::<Versioned<Served>>),
    ("send-cost", SCHEMA_VERSION, written::<Versioned<SendCost>>),
    ("comparison", campaign::comparison::VERSION, written::<Comparison>),
    ("results", campaign::archive::VERSION, written::<Results>),
    ("journal", campaign::archive::VERSION, written::<campaign::archive::Entry>),
    ("search-journal", SCHEMA_VERSION, written::<campaign::journal::SearchEntry>),
    ("trial-plan", SCHEMA_VERSION, read::<TrialPlan>),
    ("plan", SCHEMA_VERSION, read::<Plan>),
    ("dns64d", SCHEMA_VERSION, read::<dns64::config::Config>),
    ("dns64d-status", dns64::control::STATUS_VERSION, written::<dns64::control::Status>),
    ("dns64d-explain", dns64::control::EXPLANATION_VERSION, written::<dns64::control::Explanation>),
];

pub(crate) fn run(args: &Schema) -> Outcome {
    let Some(name) = &args.name else {
        for (name, ..) in &ALL {
            println!("{name}");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let Some(entry) = ALL.iter().find(|(known, ..)| known == name) else {
        let names: Vec<&str> = ALL.iter().map(|(name, ..)| *name).collect();
        return Err(Failure::usage(anyhow::anyhow!(
            "there is no schema {name:?}; there are {}",
            names.join(", ")
        )));
    };
    print!("{}", text(entry));
    Ok(ExitCode::SUCCESS)
}

/// A schema as it is kept in `schemas/`.
fn text((name, version, make): &Entry) -> String {
    let mut schema = make();
    schema.insert("$id".into(), format!("urn:dns64bench:schema:{name}:{version}").into());
    schema.insert("title".into(), (*name).into());
    PlainWords.transform(&mut schema);
    // A schema is JSON and can be written.
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}

/// Of what is written: keys that are always there are required.
fn written<T: JsonSchema>() -> Made {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// Of what is read: keys with a default may be missing, and keys that nobody knows are wrong.
fn read<T: JsonSchema>() -> Made {
    SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<T>()
}

/// Takes the marks of links out of the descriptions, which come from the types' documentation.
struct PlainWords;

impl Transform for PlainWords {
    fn transform(&mut self, schema: &mut Made) {
        if let Some(text) = schema.get("description").and_then(|text| text.as_str()) {
            let plain = text.replace("[`", "`").replace("`]", "`");
            schema.insert("description".into(), plain.into());
        }
        transform_subschemas(self, schema);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    fn schema_of(name: &str) -> Value {
        serde_json::from_str(&text(ALL.iter().find(|(known, ..)| *known == name).unwrap())).unwrap()
    }

    #[test]
    fn the_files_are_those_that_the_types_make() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
        for entry in &ALL {
            let file = folder.join(format!("{}.schema.json", entry.0));
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(&file, text(entry)).unwrap();
            }
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(
                kept == text(entry),
                "{} differs; BLESS=1 cargo test -p dns64bench schema",
                file.display()
            );
        }
        let kept = std::fs::read_dir(&folder).unwrap().count();
        assert_eq!(kept, ALL.len(), "a file in schemas/ that nothing makes");
    }

    /// A TOML text as an editor sees it.
    fn toml(text: &str) -> Value {
        serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap()
    }

    fn fault(schema: &Value, value: &Value) -> Option<String> {
        jsonschema::validate(schema, value)
            .err()
            .map(|error| format!("{error} at {}", error.instance_path))
    }

    #[test]
    fn ready_plans_and_the_shipped_configuration_are_valid() {
        let plan = schema_of("plan");
        for (name, text) in campaign::plan::READY {
            assert_eq!(fault(&plan, &toml(text)), None, "{name}");
            assert!(text.starts_with("#:schema "), "{name} names its schema for editors");
        }
        let example = include_str!("../../../../dist/dns64d.example.toml");
        assert_eq!(fault(&schema_of("dns64d"), &toml(example)), None);
        assert!(example.starts_with("#:schema "), "the example names its schema for editors");
    }

    #[test]
    fn an_editor_sees_what_is_wrong() {
        let (plan, dns64d) = (schema_of("plan"), schema_of("dns64d"));
        for wrong in [
            "name = 'x'\n",
            "name = 'x'\n[[dut]]\ndriver = 'unbuond'\n",
            "name = 'x'\nnmae = 1\n[[dut]]\ndriver = 'unbound'\n",
            "name = 'x'\n[trial]\nduration = 60\n[[dut]]\ndriver = 'unbound'\n",
        ] {
            assert!(fault(&plan, &toml(wrong)).is_some(), "{wrong}");
        }
        for wrong in ["lisen = []\n", "threads = 'many'\n", "[dns64]\nmode = 'sometimes'\n"] {
            assert!(fault(&dns64d, &toml(wrong)).is_some(), "{wrong}");
        }
    }
}
