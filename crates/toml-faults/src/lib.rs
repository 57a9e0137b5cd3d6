//! Faults of TOML files in plain words, by the JSON Schema of their contents.
//!
//! ```text
//! text ──► tree with positions ─┐
//! schema ───────────────────────┴─► value by value ─► Fault: line, reason
//! ```
//!
//! serde names Rust types in its errors ("expected u16"). A program that fails to read a file asks
//! [`fault`] first. It finds wrong types of numbers, switches, choices, lists and tables, numbers out
//! of range, and unknown or missing keys. All other faults are left to the types' own errors.
#![forbid(unsafe_code)]

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A fault of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The fault, and the right form.
    pub reason: String,
}

/// The first fault of `text`, which is to be read as `schema` describes (JSON Schema draft 2020-12,
/// as schemars makes it). `None` if the text is not TOML or has no fault of the kinds above.
pub fn fault(text: &str, schema: &Value) -> Option<Fault> {
    let tree = DeTable::parse(text).ok()?;
    let mut search = Search { text, schema, faults: Vec::new() };
    search.table(tree.get_ref(), 0, schema, &Place { path: String::new(), form: Form::Table });
    let (offset, reason) = search.faults.into_iter().min_by_key(|(offset, _)| *offset)?;
    Some(Fault { line: line_at(text, offset), reason })
}

/// The line of the value at a path such as `group.0.clients.1`, from 1. If the value is not written,
/// the line of the innermost table or list on the path that is; 1 if none is.
pub fn line_of(text: &str, path: &str) -> usize {
    line_at(text, offset_of(text, path).unwrap_or(0))
}

/// The line of an offset, from 1.
pub fn line_at(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|octet| **octet == b'\n').count() + 1
}

/// All strings in `text` with their offsets, in the order of the file.
pub fn strings(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    if let Ok(tree) = DeTable::parse(text) {
        tree.get_ref().values().for_each(|value| collect(value, &mut found));
    }
    found.sort_unstable();
    found
}

fn collect(value: &Spanned<DeValue<'_>>, found: &mut Vec<(usize, String)>) {
    match value.get_ref() {
        DeValue::String(text) => found.push((value.span().start, text.to_string())),
        DeValue::Array(items) => items.iter().for_each(|item| collect(item, found)),
        DeValue::Table(table) => table.values().for_each(|value| collect(value, found)),
        _ => {}
    }
}

fn offset_of(text: &str, path: &str) -> Option<usize> {
    let tree = DeTable::parse(text).ok()?;
    let mut steps = path.split('.');
    let (key, mut value) = entry(tree.get_ref(), steps.next()?)?;
    let mut offset = key;
    for step in steps {
        let next = match value.get_ref() {
            DeValue::Table(table) => entry(table, step),
            DeValue::Array(items) => step
                .parse::<usize>()
                .ok()
                .and_then(|place| items.get(place))
                .map(|item| (item.span().start, item)),
            _ => None,
        };
        let Some((at, inner)) = next else { break };
        (offset, value) = (at, inner);
    }
    Some(offset)
}

/// The offset of a key, and its value.
fn entry<'a, 'i>(table: &'a DeTable<'i>, key: &str) -> Option<(usize, &'a Spanned<DeValue<'i>>)> {
    let (key, value) = table.iter().find(|(name, _)| name.get_ref() == key)?;
    Some((key.span().start, value))
}

/// A table in the file.
struct Place {
    /// Its keys from the root on, joined by dots; empty: the root.
    path: String,
    form: Form,
}

/// The way in which a table is written.
#[derive(Clone, Copy)]
enum Form {
    /// `[table]`, or the root.
    Table,
    /// `[[table]]`.
    Item,
    /// In braces, in the list of this key.
    Braces,
}

impl Place {
    /// The path of a key in this table.
    fn of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The table as the file has it.
    fn name(&self) -> String {
        match (self.path.as_str(), self.form) {
            ("", _) => "the top level".to_owned(),
            (path, Form::Table) => format!("[{path}]"),
            (path, Form::Item) => format!("[[{path}]]"),
            (path, Form::Braces) => format!("{path} = [{{ … }}]"),
        }
    }
}

struct Search<'a> {
    text: &'a str,
    /// The whole schema, with its definitions.
    schema: &'a Value,
    /// Offsets and reasons.
    faults: Vec<(usize, String)>,
}

impl<'a> Search<'a> {
    /// Looks through a table with its header or brace at `offset`.
    fn table(&mut self, table: &DeTable<'_>, offset: usize, schema: &'a Value, place: &Place) {
        let Some(schema) = self.only(schema) else { return };
        let known = &schema["properties"];
        for (key, value) in table {
            let (at, key): (usize, &str) = (key.span().start, key.get_ref());
            match (known.get(key), &schema["additionalProperties"]) {
                (Some(schema), _) | (None, schema @ Value::Object(_)) => {
                    self.value(key, at, value, schema, place);
                }
                (None, Value::Bool(false)) => {
                    let reason = self.unknown(key, known, place);
                    self.faults.push((at, reason));
                }
                _ => {}
            }
        }
        let required = schema["required"].as_array().into_iter().flatten();
        for key in required.filter_map(Value::as_str) {
            if entry(table, key).is_none() {
                self.faults.push((offset, format!("{} needs the key \"{key}\"", place.name())));
            }
        }
    }

    fn unknown(&self, key: &str, known: &Value, place: &Place) -> String {
        let mut reason = format!("{} has no key \"{key}\"", place.name());
        let of_root = &self.schema["properties"];
        if !place.path.is_empty() && of_root.get(key).is_some() {
            reason += "; keys of the top level stand before the first [table]";
        }
        let known = known.as_object().into_iter().flat_map(|known| known.keys());
        let known: Vec<&str> = known.map(String::as_str).collect();
        format!("{reason}; it has: {}", known.join(", "))
    }

    /// Looks at the value of a key at `offset`.
    fn value(
        &mut self,
        key: &str,
        offset: usize,
        value: &Spanned<DeValue<'_>>,
        schema: &'a Value,
        place: &Place,
    ) {
        let Some(schema) = self.only(schema) else { return };
        let wanted = match kind(schema) {
            Some("integer") => number(value.get_ref(), schema),
            Some("number") => real(value.get_ref(), schema),
            Some("boolean") => (!value.get_ref().is_bool()).then(|| "true or false".to_owned()),
            Some("array") => return self.array(key, offset, value, schema, place),
            Some("object") => return self.object(key, offset, value, schema, place),
            _ => choice(value.get_ref(), schema).or_else(|| single(value.get_ref(), schema)),
        };
        if let Some(wanted) = wanted {
            self.faults.push((value.span().start, format!("\"{key}\" takes {wanted}")));
        }
    }

    fn array(
        &mut self,
        key: &str,
        offset: usize,
        value: &Spanned<DeValue<'_>>,
        schema: &'a Value,
        place: &Place,
    ) {
        let path = place.of(key);
        let items = schema.get("items").and_then(|items| self.only(items));
        let of_tables = items.is_some_and(|items| kind(items) == Some("object"));
        match value.get_ref() {
            DeValue::Array(all) => {
                let Some(items) = items else { return };
                for item in all {
                    let at = item.span().start;
                    match item.get_ref() {
                        DeValue::Table(table) if of_tables => {
                            let form = if self.is_inline(at) { Form::Braces } else { Form::Item };
                            self.table(table, at, items, &Place { path: path.clone(), form });
                        }
                        _ => self.value(key, at, item, items, place),
                    }
                }
            }
            DeValue::Table(_) if of_tables && !self.is_inline(value.span().start) => {
                self.faults.push((offset, format!("write [[{path}]]: there can be several")));
            }
            _ => self.faults.push((offset, format!("\"{key}\" takes a list; write {key} = [ … ]"))),
        }
    }

    fn object(
        &mut self,
        key: &str,
        offset: usize,
        value: &Spanned<DeValue<'_>>,
        schema: &'a Value,
        place: &Place,
    ) {
        let path = place.of(key);
        let reason = match value.get_ref() {
            DeValue::Table(table) => {
                return self.table(table, offset, schema, &Place { path, form: Form::Table });
            }
            DeValue::Array(items) if items.iter().all(|item| item.get_ref().is_table()) => {
                format!("write [{path}]: there is only one")
            }
            _ => match schema["examples"].get(0) {
                Some(example) => {
                    format!("\"{key}\" takes tables; write for example {}", inline(example))
                }
                None => format!("\"{key}\" is a table; write [{path}] and its keys below it"),
            },
        };
        self.faults.push((value.span().start, reason));
    }

    /// True if a table is written in braces.
    fn is_inline(&self, offset: usize) -> bool {
        self.text.as_bytes().get(offset) == Some(&b'{')
    }

    /// The schema, references looked up, if there is only one kind of value beside "none".
    fn only(&self, schema: &'a Value) -> Option<&'a Value> {
        let schema = schema_of(self.schema, schema);
        let alternatives = schema.get("anyOf").or_else(|| schema.get("oneOf"));
        let Some(alternatives) = alternatives.and_then(Value::as_array) else {
            return Some(schema);
        };
        if constants(schema).is_some() {
            return Some(schema);
        }
        let mut others = alternatives.iter().filter(|one| kind(one) != Some("null"));
        match (others.next(), others.next()) {
            (Some(one), None) => self.only(one),
            _ => None,
        }
    }
}

/// A schema, its reference looked up.
fn schema_of<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let name = schema["$ref"].as_str().and_then(|text| text.strip_prefix("#/$defs/"));
    match name.and_then(|name| root["$defs"].get(name)) {
        Some(definition) => schema_of(root, definition),
        None => schema,
    }
}

/// The type of a schema's values, "none" aside.
fn kind(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::String(kind) => Some(kind),
        Value::Array(kinds) => {
            let mut others = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            others.next().filter(|_| others.next().is_none())
        }
        _ => None,
    }
}

/// The words that a schema allows, if it is a choice among words.
fn constants(schema: &Value) -> Option<Vec<&str>> {
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().filter(|word| !word.is_null()).map(Value::as_str).collect();
    }
    let alternatives = schema["oneOf"].as_array()?.iter();
    let words = alternatives.map(|one| match one["enum"].as_array() {
        Some(words) => words.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
        None => one["const"].as_str().map(|word| vec![word]),
    });
    words.collect::<Option<Vec<_>>>().map(|words| words.concat())
}

/// The right form, if a value is none of the words that a schema allows.
fn choice(value: &DeValue<'_>, schema: &Value) -> Option<String> {
    let words = constants(schema)?;
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match value.as_str() {
        Some(word) if words.contains(&word) => None,
        Some(word) => Some(format!("{}, not \"{word}\"", in_words(&quoted))),
        None => Some(in_words(&quoted)),
    }
}

/// The right form, if a list or a table stands in the place of a text.
fn single(value: &DeValue<'_>, schema: &Value) -> Option<String> {
    match value {
        _ if kind(schema) != Some("string") => None,
        DeValue::Array(_) => Some("one text, not a list".to_owned()),
        DeValue::Table(_) => Some("one text, not a table".to_owned()),
        _ => None,
    }
}

/// A choice, as in `a, b or c`.
fn in_words(all: &[String]) -> String {
    match all {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}

/// The right form, if a value is no whole number within the bounds.
fn number(value: &DeValue<'_>, schema: &Value) -> Option<String> {
    let bound = |key: &str| schema[key].as_i64().map(i128::from);
    let (least, most) = (bound("minimum"), bound("maximum"));
    let found = value.as_integer().and_then(|number| {
        i128::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
    });
    let fits = |found: i128| {
        least.is_none_or(|least| found >= least) && most.is_none_or(|most| found <= most)
    };
    (!found.is_some_and(fits)).then(|| match (least, most) {
        (Some(least), Some(most)) => format!("a number from {least} to {most}"),
        (Some(least), None) => format!("a whole number, {least} or more"),
        (None, Some(most)) => format!("a whole number, at most {most}"),
        (None, None) => "a whole number".to_owned(),
    })
}

/// The right form, if a value is no number.
fn real(value: &DeValue<'_>, schema: &Value) -> Option<String> {
    let bounds = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
    (!value.is_integer() && !value.is_float()).then(|| match bounds {
        (Some(least), Some(most)) => format!("a number from {least} to {most}"),
        _ => "a number".to_owned(),
    })
}

/// A value as it is written in braces.
fn inline(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let keys: Vec<String> =
                table.iter().map(|(key, value)| format!("{key} = {}", inline(value))).collect();
            format!("{{ {} }}", keys.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "user": { "type": ["string", "null"] },
                "threads": { "type": "integer", "minimum": 0 },
                "listen": { "type": "array", "items": { "anyOf": [{ "type": "string" }, { "type": "object" }] } },
                "cache": { "$ref": "#/$defs/Cache", "default": {} },
                "group": { "type": "array", "items": { "$ref": "#/$defs/Group" } },
                "networks": { "type": "object", "additionalProperties": { "type": "array", "items": { "type": "string" } } },
            },
            "$defs": {
                "Cache": {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "size": { "type": "integer", "minimum": 1, "maximum": 9 },
                        "share": { "type": "number" },
                        "stale": { "type": "boolean" },
                        "mode": { "anyOf": [{ "$ref": "#/$defs/Mode" }, { "type": "null" }] },
                    },
                },
                "Mode": { "oneOf": [{ "const": "fast" }, { "const": "safe" }, { "enum": ["off"] }] },
                "Group": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["clients"],
                    "properties": {
                        "clients": { "type": "array", "items": { "type": "string" } },
                        "port": { "type": "integer", "minimum": 1, "maximum": 65535 },
                        "prefixes": { "type": ["array", "null"], "items": { "$ref": "#/$defs/Prefix" } },
                        "domain": { "type": "array", "items": { "$ref": "#/$defs/Prefix" } },
                    },
                },
                "Prefix": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["prefix"],
                    "examples": [{ "prefix": "64:ff9b::/96" }],
                    "properties": { "prefix": { "type": "string" } },
                },
            },
        })
    }

    #[test]
    fn faults_have_their_line_and_the_right_form() {
        for (text, line, reason) in [
            ("threads = 'x'", 1, "\"threads\" takes a whole number, 0 or more"),
            ("threads = -1", 1, "\"threads\" takes a whole number, 0 or more"),
            ("\n[cache]\nsize = 10", 3, "\"size\" takes a number from 1 to 9"),
            ("[cache]\nsize = '4M'", 2, "\"size\" takes a number from 1 to 9"),
            ("cache.size = 1.5", 1, "\"size\" takes a number from 1 to 9"),
            ("[cache]\nshare = 'x'", 2, "\"share\" takes a number"),
            ("[cache]\nstale = 'yes'", 2, "\"stale\" takes true or false"),
            (
                "[cache]\nmode = 'slow'",
                2,
                "\"mode\" takes \"fast\", \"safe\" or \"off\", not \"slow\"",
            ),
            ("user = ['x']", 1, "\"user\" takes one text, not a list"),
            ("[user]\nx = 1", 1, "\"user\" takes one text, not a table"),
            ("[cache]\nmode = 1", 2, "\"mode\" takes \"fast\", \"safe\" or \"off\""),
            ("[[cache]]\nsize = 1", 1, "write [cache]: there is only one"),
            ("cache = 7", 1, "\"cache\" is a table; write [cache] and its keys below it"),
            ("[group]\nclients = []", 1, "write [[group]]: there can be several"),
            (
                "[[group]]\nclients = []\n[group.domain]\nprefix = 'x'",
                3,
                "write [[group.domain]]: there can be several",
            ),
            ("[[group]]\nclients = 'x'", 2, "\"clients\" takes a list; write clients = [ … ]"),
            ("[[group]]\nport = 1", 1, "[[group]] needs the key \"clients\""),
            (
                "[[group]]\nclients = []\n[[group]]\nclients = []\nport = 0x1_0000",
                5,
                "\"port\" takes a number from 1 to 65535",
            ),
            (
                "[[group]]\nclients = []\nprefixes = { prefix = 'x' }",
                3,
                "\"prefixes\" takes a list; write prefixes = [ … ]",
            ),
            (
                "[[group]]\nclients = []\nprefixes = [\n 'x']",
                4,
                "\"prefixes\" takes tables; write for example { prefix = \"64:ff9b::/96\" }",
            ),
            ("networks.lab = 'x'", 1, "\"lab\" takes a list; write lab = [ … ]"),
            (
                "thread = 1",
                1,
                "the top level has no key \"thread\"; it has: cache, group, listen, networks, threads, user",
            ),
            (
                "[cache]\nuser = 'x'",
                2,
                "[cache] has no key \"user\"; keys of the top level stand before the first [table]; it has: mode, share, size, stale",
            ),
        ] {
            let expected = Some(Fault { line, reason: reason.to_owned() });
            assert_eq!(fault(text, &schema()), expected, "{text}");
        }
    }

    #[test]
    fn right_files_and_faults_of_other_kinds_are_passed_over() {
        for text in [
            "",
            "not toml",
            "user = 1",
            "listen = [1]",
            "threads = 0b11\n[cache]\nsize = 9\nshare = 1\nstale = true\nmode = 'off'",
            "[[group]]\nclients = ['x']\nprefixes = [{ prefix = 'x' }]\n[[group.domain]]\nprefix = 'y'",
            "[networks]\nlab = ['x']",
        ] {
            assert_eq!(fault(text, &schema()), None, "{text}");
        }
    }

    #[test]
    fn paths_have_lines() {
        let text = "a = 1\n[b]\nc = [\n 1,\n 2,\n]\n[[d]]\ne = 3\n[[d]]\ne = 4\n";
        for (path, line) in [
            ("a", 1),
            ("b", 2),
            ("b.c", 3),
            ("b.c.1", 5),
            ("b.x", 2),
            ("d.1.e", 10),
            ("d.0.x", 7),
            ("x", 1),
        ] {
            assert_eq!(line_of(text, path), line, "{path}");
        }
        assert_eq!(line_of("not toml", "a"), 1);
    }

    #[test]
    fn strings_have_offsets() {
        let text = "a = ['x', { b = 'y' }]\n[c]\nd = 'z'\n";
        let found = strings(text);
        let lines: Vec<(usize, &str)> =
            found.iter().map(|(offset, found)| (line_at(text, *offset), found.as_str())).collect();
        assert_eq!(lines, [(1, "x"), (1, "y"), (2 + 1, "z")]);
    }
}
