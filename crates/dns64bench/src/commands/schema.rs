//! `schema`: prints JSON Schemas (draft 2020-12) of the objects that the programs read and write. The schemas are
//! generated from the types of the objects.

use std::process::ExitCode;

use campaign::plan::Plan;
use campaign::results::Results;
use campaign::search::SearchResult;
use conform::outcome::Checked;
use hosts::environment::Environment;
use report::comparison::Comparison;
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
use super::try_server::TryResult;
use crate::args::Schema;
use crate::output::{
    Failure, MaybeWithEnvironment, Outcome, SCHEMA_VERSION, Versioned, WithEnvironment,
};

/// JSON output of a command that measures.
type Printed<T> = Versioned<WithEnvironment<T>>;

/// A schema: name, version of the object, and generator function.
type Entry = (&'static str, u32, fn() -> Made);

/// All schemas. The schema of a journal describes a single line of the journal.
const ALL: [Entry; 24] = [
    ("trial", SCHEMA_VERSION, written::<Versioned<MaybeWithEnvironment<TrialResult>>>),
    ("merge", SCHEMA_VERSION, written::<Versioned<Merged>>),
    ("search", SCHEMA_VERSION, written::<Printed<SearchResult>>),
    ("self-test", SCHEMA_VERSION, written::<Printed<SelfTestResult>>),
    ("closed-loop", SCHEMA_VERSION, written::<Printed<ClosedLoopResult>>),
    ("dns64perf2", SCHEMA_VERSION, written::<Printed<Experiments>>),
    ("quickstart", SCHEMA_VERSION, written::<Printed<QuickstartResult>>),
    ("try", SCHEMA_VERSION, written::<Printed<TryResult>>),
    ("conform", SCHEMA_VERSION, written::<Versioned<Checked>>),
    ("check", SCHEMA_VERSION, written::<Versioned<Environment>>),
    ("auth", SCHEMA_VERSION, written::<Versioned<AuthCounters>>),
    ("reference-dut", SCHEMA_VERSION, written::<Versioned<Served>>),
    ("send-cost", SCHEMA_VERSION, written::<Versioned<SendCost>>),
    ("comparison", report::comparison::VERSION, written::<Comparison>),
    ("results", campaign::record::VERSION, written::<Results>),
    ("journal", campaign::record::VERSION, written::<campaign::record::Entry>),
    ("search-journal", SCHEMA_VERSION, written::<campaign::journal::SearchEntry>),
    ("trial-plan", SCHEMA_VERSION, read::<TrialPlan>),
    ("plan", SCHEMA_VERSION, read::<Plan>),
    ("dns64d", SCHEMA_VERSION, read::<dns64::config::Config>),
    ("dns64d-status", dns64::control::STATUS_VERSION, written::<dns64::control::Status>),
    ("dns64d-explain", dns64::control::EXPLANATION_VERSION, written::<dns64::control::Explanation>),
    ("dns64d-reload", dns64::control::RELOAD_VERSION, written::<dns64::control::ReloadReport>),
    ("dns64d-flush", dns64::control::FLUSH_VERSION, written::<dns64::control::FlushReport>),
];

pub(crate) fn run(args: &Schema) -> Outcome {
    let Some(name) = &args.name else {
        for name in names() {
            println!("{name}");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let Some(entry) = ALL.iter().find(|(known, ..)| known == name) else {
        return Err(Failure::usage(anyhow::anyhow!(
            "there is no schema {name:?}; there are {}",
            names().join(", ")
        )));
    };
    print!("{}", text(entry));
    Ok(ExitCode::SUCCESS)
}

/// Returns the names of all schemas.
pub(crate) fn names() -> [&'static str; ALL.len()] {
    ALL.map(|(name, ..)| name)
}

/// Returns the text of a schema, which is printed and also stored in `schemas/` for editors.
fn text((name, version, make): &Entry) -> String {
    let mut schema = make();
    schema.insert("$id".into(), format!("urn:dns64bench:schema:{name}:{version}").into());
    schema.insert("title".into(), (*name).into());
    PlainWords.transform(&mut schema);
    // Serialization cannot fail, because a schema has only string keys.
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}

/// Returns the schema of an object that the programs write: keys that are always written are required.
fn written<T: JsonSchema>() -> Made {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// Returns the schema of an object that the programs read: keys with a default are optional, and unknown keys are
/// errors.
fn read<T: JsonSchema>() -> Made {
    SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<T>()
}

/// Transform that removes link markup from the descriptions in a schema. These descriptions are generated from doc
/// comments.
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

    /// Schemas that are stored in the repository, because editors read them by path.
    const KEPT: [&str; 2] = ["plan", "dns64d"];

    #[test]
    fn kept_schemas_match_the_types() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
        for name in KEPT {
            let made = text(ALL.iter().find(|(known, ..)| *known == name).unwrap());
            let file = folder.join(format!("{name}.schema.json"));
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(&file, &made).unwrap();
            }
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(
                kept == made,
                "{} differs; BLESS=1 cargo test -p dns64bench schema",
                file.display()
            );
        }
        let files = std::fs::read_dir(&folder).unwrap().count();
        assert_eq!(files, KEPT.len(), "unexpected file in schemas/");
    }

    #[test]
    fn every_schema_is_valid_and_documented() {
        let page = include_str!("../../../../docs/src/formats.md");
        let (_, table) = page.split_once("| Schema | Object |\n").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        for (name, ..) in &ALL {
            let schema = schema_of(name);
            if let Err(error) = jsonschema::meta::validate(&schema) {
                panic!("{name}: {error}");
            }
            assert!(table.contains(&format!("`{name}`")), "{name} is not in formats.md");
        }
    }

    /// Converts a TOML text to the JSON value that an editor validates.
    fn toml(text: &str) -> Value {
        serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap()
    }

    fn fault(schema: &Value, value: &Value) -> Option<String> {
        jsonschema::validate(schema, value)
            .err()
            .map(|error| format!("{error} at {}", error.instance_path))
    }

    #[test]
    fn built_in_plans_and_example_match_their_schemas() {
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
    fn editor_schema_detects_errors() {
        let (plan, dns64d) = (schema_of("plan"), schema_of("dns64d"));
        for wrong in [
            "name = 'x'\n",
            "name = 'x'\n[[dut]]\ndriver = 'unbuond'\n",
            "name = 'x'\nnmae = 1\n[[dut]]\ndriver = 'unbound'\n",
            "name = 'x'\n[trial]\nduration = true\n[[dut]]\ndriver = 'unbound'\n",
        ] {
            assert!(fault(&plan, &toml(wrong)).is_some(), "{wrong}");
        }
        for wrong in ["lisen = []\n", "threads = 'many'\n", "[dns64]\nmode = 'sometimes'\n"] {
            assert!(fault(&dns64d, &toml(wrong)).is_some(), "{wrong}");
        }
    }
}
