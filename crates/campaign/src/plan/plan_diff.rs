//! Differences between two plans.

use serde::Serialize;
use serde_json::Value;

use crate::plan::Plan;

/// Maximum number of keys that a message lists.
const NAMED: usize = 8;

/// Returns the keys in which two plans differ, such as `trial.duration` or `dut[0].name`. A missing
/// key counts as a key with its default value.
pub fn differing_keys(a: &Plan, b: &Plan) -> Vec<String> {
    let mut keys = Vec::new();
    compare(&value(a), &value(b), "", &mut keys);
    keys
}

/// Formats the keys for a message. Only the first keys of a long list are named.
pub fn sentence(keys: &[String]) -> String {
    let mut text = keys[..keys.len().min(NAMED)].join(", ");
    if keys.len() > NAMED {
        text.push_str(&format!(" and {} more", keys.len() - NAMED));
    }
    text
}

/// Returns a plan as it would be after storage in the journal. The plan is converted to text and back, because this
/// conversion can change the last digit of a number.
fn value(plan: &impl Serialize) -> Value {
    let text = serde_json::to_string(plan).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Compares the values `a` and `b` that two plans have for the key `at`. Adds each key with
/// different values to `keys`. If the values contain further keys, these are compared one by one.
fn compare(a: &Value, b: &Value, at: &str, keys: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let key = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                let of = |map: &serde_json::Map<String, Value>| {
                    map.get(name).cloned().unwrap_or_default()
                };
                compare(&of(a), &of(b), &key, keys);
            }
        }
        (Value::Array(a), Value::Array(b)) if holds_tables(a) || holds_tables(b) => {
            for n in 0..a.len().max(b.len()) {
                let of = |list: &[Value]| list.get(n).cloned().unwrap_or_default();
                compare(&of(a), &of(b), &format!("{at}[{n}]"), keys);
            }
        }
        _ if a != b => keys.push(at.into()),
        _ => {}
    }
}

fn holds_tables(list: &[Value]) -> bool {
    list.iter().any(Value::is_object)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::parse(text, Path::new("p.toml")).unwrap()
    }

    #[test]
    fn keys_are_named_as_a_user_writes_them() {
        let begun = "name = 'x'\n[trial]\nduration = '1s'\nwindow-limit = 0.3\n[measure]\ncores = [1]\n[[dut]]\ndriver = 'unbound'\n";
        let differs = |text: &str| differing_keys(&plan(begun), &plan(text));
        assert_eq!(differs(begun), Vec::<String>::new());
        assert_eq!(differs(&begun.replace("'1s'", "'1000ms' # the same")), Vec::<String>::new());
        assert_eq!(
            differs(&format!("topology = 'lab'\n{begun}")),
            Vec::<String>::new(),
            "a default written out"
        );
        assert_eq!(differs(&begun.replace("1s", "60s")), ["trial.duration"]);
        assert_eq!(differs(&begun.replace("[1]", "[1, 2]")), ["measure.cores"]);
        assert_eq!(
            differs(
                &format!("{begun}name = 'mine'\nmax = 9\nprogram = '/x'\n")
                    .replace("max = 9\n", "")
            ),
            ["dut[0].name", "dut[0].program"]
        );
        assert_eq!(differs(&format!("{begun}[[dut]]\ndriver = 'bind'\n")), ["dut[1]"]);
        assert_eq!(differs(&format!("{begun}[self-test]\nmin = 1\n")), ["self-test"]);
        let table = "[search]\nmax = 5\nmin = 2\n";
        assert_eq!(
            differs(&begun.replace("[measure]", &format!("{table}[measure]"))),
            ["search.max", "search.min"]
        );
    }

    #[test]
    fn of_many_keys_the_first_are_named() {
        let keys: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        assert_eq!(sentence(&keys), "0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
        assert_eq!(sentence(&keys[..2]), "0, 1");
    }
}
