//! Values with their lines, as YAML and tables of Lua have them.

use std::path::Path;
use std::sync::Arc;

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use super::error::ImportError;
use super::files::{called, read};
use super::notes::Place;

/// The column up to which a line may be indented.
const DEEPEST_COLUMN: usize = 200;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub place: Place,
    pub value: Value,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Text, a number, `true` or nothing.
    Text(String),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
    /// A call in Lua: what is called, and its arguments.
    Call(String, Vec<Node>),
}

impl Node {
    /// The text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// The elements of a list; a value that is no list is its own only element.
    pub(super) fn elements(&self) -> &[Node] {
        match &self.value {
            Value::List(elements) => elements,
            Value::Table(entries) if entries.is_empty() => &[],
            _ => std::slice::from_ref(self),
        }
    }

    /// The keys of a table with their values.
    pub(super) fn entries(&self) -> &[(String, Node)] {
        if let Value::Table(entries) = &self.value { entries } else { &[] }
    }

    /// The value of a key of a table.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|(known, _)| known == key).map(|(_, node)| node)
    }

    /// As it may have been written, in one line.
    pub(super) fn written(&self) -> String {
        let list = |nodes: &[Node]| nodes.iter().map(Node::written).collect::<Vec<_>>().join(", ");
        match &self.value {
            Value::Text(text) => text.clone(),
            Value::List(elements) => format!("[{}]", list(elements)),
            Value::Table(entries) => {
                let entry = |(key, node): &(String, Node)| format!("{key}: {}", node.written());
                format!("{{ {} }}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
            Value::Call(name, arguments) => format!("{name}({})", list(arguments)),
        }
    }
}

/// The first document of a YAML file.
///
/// # Errors
/// If the file cannot be read, or is no YAML.
pub(super) fn yaml(file: &Path) -> Result<Node, ImportError> {
    let text = read(file)?;
    let bad = |reason: String| ImportError::Yaml { file: file.to_owned(), reason };
    // The parser goes as deep as the text does.
    let depth = |line: &str| line.find(|c| !matches!(c, ' ' | '-')).unwrap_or(line.len());
    if let Some(line) = text.lines().position(|line| depth(line) > DEEPEST_COLUMN) {
        return Err(bad(format!("line {}: too deep", line + 1)));
    }
    let documents = MarkedYaml::load_from_str(&text).map_err(|error| bad(error.to_string()))?;
    let name = called(file);
    match documents.first() {
        Some(document) => Ok(node(document, &name)),
        None => Ok(Node { place: Place::new(&name, 1), value: Value::Table(Vec::new()) }),
    }
}

fn node(yaml: &MarkedYaml<'_>, name: &Arc<str>) -> Node {
    let value = match &yaml.data {
        YamlData::Sequence(elements) => {
            Value::List(elements.iter().map(|element| node(element, name)).collect())
        }
        YamlData::Mapping(entries) => Value::Table(
            entries.iter().map(|(key, value)| (text(&key.data), node(value, name))).collect(),
        ),
        YamlData::Tagged(_, inner) => return node(inner, name),
        other => Value::Text(text(other)),
    };
    Node { place: Place::new(name, yaml.span.start.line()), value }
}

/// A scalar as text.
fn text<'a>(data: &YamlData<'a, MarkedYaml<'a>>) -> String {
    match data {
        YamlData::Value(Scalar::String(text)) => text.to_string(),
        YamlData::Value(Scalar::Integer(number)) => number.to_string(),
        YamlData::Value(Scalar::FloatingPoint(number)) => number.to_string(),
        YamlData::Value(Scalar::Boolean(is)) => is.to_string(),
        YamlData::Representation(text, ..) => text.to_string(),
        _ => String::new(),
    }
}
