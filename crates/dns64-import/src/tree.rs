//! Values of YAML files and of Lua tables, with their locations.
//!
//! A YAML file is read event by event. Reading stops early if the nesting is too deep, or if the
//! aliases expand to too much text.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::str::Chars;
use std::sync::Arc;

use saphyr_parser::{BufferedInput, Event, Parser, ScalarStyle, Tag};

use super::error::{ImportError, LONGEST_FILE};
use super::files::{called, read};
use super::notes::{Location, shortened};

/// Maximum nesting depth of lists and tables.
const DEEPEST: usize = 64;

/// A value with its location.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub location: Location,
    pub value: Value,
}

/// A value in a YAML file or a Lua table.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Text, a number, a Boolean value, or an empty text for null.
    Text(String),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
    /// A function call in Lua: name and arguments.
    Call(String, Vec<Node>),
    /// Name of a Lua variable with an unknown value.
    Name(String),
}

impl Node {
    /// Returns the text of a scalar; `None` for any other value.
    pub(super) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// Returns the elements of a list. Any other value is treated as a list with one element,
    /// except an empty table, which is treated as an empty list.
    pub(super) fn elements(&self) -> &[Node] {
        match &self.value {
            Value::List(elements) => elements,
            Value::Table(entries) if entries.is_empty() => &[],
            _ => std::slice::from_ref(self),
        }
    }

    /// Returns the entries of a table. Any other value has no entries.
    pub(super) fn entries(&self) -> &[(String, Node)] {
        if let Value::Table(entries) = &self.value { entries } else { &[] }
    }

    /// Returns the value of a key in a table.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|(known, _)| known == key).map(|(_, node)| node)
    }

    /// Returns the name and the arguments of a call. For any other value, returns an empty name and no arguments.
    pub(super) fn call(&self) -> (&str, &[Node]) {
        match &self.value {
            Value::Call(name, arguments) => (name, arguments),
            _ => ("", &[]),
        }
    }

    /// Returns the size of this value in memory, in octets.
    fn octets(&self) -> usize {
        let of = |nodes: &[Node]| nodes.iter().map(Node::octets).sum::<usize>();
        let more = match &self.value {
            Value::Text(text) | Value::Name(text) => text.len(),
            Value::List(elements) => of(elements),
            Value::Table(entries) => {
                let entry = |(key, node): &(String, Node)| key.len() + node.octets();
                size_of::<String>() * entries.len() + entries.iter().map(entry).sum::<usize>()
            }
            Value::Call(name, arguments) => name.len() + of(arguments),
        };
        size_of::<Node>() + more
    }

    /// Returns the nesting depth of this value: 0 for a scalar.
    fn height(&self) -> usize {
        let of = |nodes: &[Node]| nodes.iter().map(Node::height).max().unwrap_or(0);
        match &self.value {
            Value::Text(_) | Value::Name(_) => 0,
            Value::List(elements) | Value::Call(_, elements) => 1 + of(elements),
            Value::Table(entries) => {
                1 + entries.iter().map(|(_, node)| node.height()).max().unwrap_or(0)
            }
        }
    }

    /// Returns the value as text on one line.
    pub(super) fn written(&self) -> String {
        let list = |nodes: &[Node]| nodes.iter().map(Node::written).collect::<Vec<_>>().join(", ");
        match &self.value {
            Value::Text(text) | Value::Name(text) => text.clone(),
            Value::List(elements) => format!("[{}]", list(elements)),
            Value::Table(entries) => {
                let entry = |(key, node): &(String, Node)| format!("{key}: {}", node.written());
                format!("{{ {} }}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
            Value::Call(name, arguments) => format!("{name}({})", list(arguments)),
        }
    }
}

/// Reads the first document of a YAML file.
///
/// # Errors
/// Returns an error if the file cannot be read, is not YAML, or is nested deeper than [`DEEPEST`], or if its anchors
/// and aliases expand to more than [`LONGEST_FILE`] octets.
pub(super) fn yaml(file: &Path) -> Result<Node, ImportError> {
    let text = read(file)?;
    let mut reader = Reader {
        events: Parser::new_from_iter(text.chars()),
        name: called(file),
        anchors: HashMap::new(),
        left: LONGEST_FILE,
    };
    reader.document().map_err(|reason| ImportError::Yaml { file: file.to_owned(), reason })
}

/// Reader of a YAML text. Its errors are sentences that contain the line number.
struct Reader<'a> {
    events: Parser<'a, BufferedInput<Chars<'a>>>,
    name: Arc<str>,
    /// Copies of the values that have an anchor, by anchor ID.
    anchors: HashMap<usize, Node>,
    /// Number of octets that may still be copied for anchors and aliases.
    left: u64,
}

impl<'a> Reader<'a> {
    /// Reads the first document of the YAML text. The rest of the text must also be valid YAML.
    fn document(&mut self) -> Result<Node, String> {
        let mut document = None;
        while let Some((event, line)) = self.event()? {
            let is_value = matches!(
                event,
                Event::Alias(_)
                    | Event::Scalar(..)
                    | Event::SequenceStart(..)
                    | Event::MappingStart(..)
            );
            if is_value && document.is_none() {
                document = Some(self.node(event, line, 0)?);
            }
        }
        let nothing =
            || Node { location: Location::new(&self.name, 1), value: Value::Table(Vec::new()) };
        Ok(document.unwrap_or_else(nothing))
    }

    /// Returns the next event with its line number.
    fn event(&mut self) -> Result<Option<(Event<'a>, usize)>, String> {
        let event = self.events.next().transpose().map_err(|error| error.to_string())?;
        Ok(event.map(|(event, span)| (event, span.start.line())))
    }

    /// Reads the value that begins with the YAML event `event`. The value is at the nesting depth `depth`.
    fn node(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<Node, String> {
        let opens = matches!(event, Event::SequenceStart(..) | Event::MappingStart(..));
        if opens && depth >= DEEPEST {
            return Err(too_deep(line));
        }
        let location = Location::new(&self.name, line);
        let (value, anchor) = match event {
            Event::Alias(anchor) => {
                let value = self.alias(anchor, line, depth)?;
                return Ok(Node { location, value });
            }
            Event::Scalar(text, style, anchor, tag) => {
                (Value::Text(scalar(&text, style, tag.as_deref())), anchor)
            }
            Event::SequenceStart(anchor, _) => (Value::List(self.list(depth + 1)?), anchor),
            Event::MappingStart(anchor, _) => (Value::Table(self.table(depth + 1)?), anchor),
            // Other events do not occur within a document.
            _ => (Value::Text(String::new()), 0),
        };
        let node = Node { location, value };
        // The ID 0 means that the value has no anchor.
        if anchor > 0 {
            self.charge_copy(&node, line)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// Returns the value that an alias refers to.
    fn alias(&mut self, anchor: usize, line: usize, depth: usize) -> Result<Value, String> {
        let Some(node) = self.anchors.remove(&anchor) else {
            return Err(format!("line {line}: an alias within its anchor"));
        };
        if depth + node.height() > DEEPEST {
            return Err(too_deep(line));
        }
        self.charge_copy(&node, line)?;
        let value = node.value.clone();
        self.anchors.insert(anchor, node);
        Ok(value)
    }

    /// Subtracts the size of a value from the number of octets that may still be copied for anchors and aliases. Fails
    /// if the value is larger than this number.
    fn charge_copy(&mut self, node: &Node, line: usize) -> Result<(), String> {
        let left = self.left.checked_sub(node.octets() as u64);
        self.left = left.ok_or_else(|| {
            format!("line {line}: anchors and aliases expand to more than {LONGEST_FILE} octets")
        })?;
        Ok(())
    }

    /// Reads the elements of a list, up to its end.
    fn list(&mut self, depth: usize) -> Result<Vec<Node>, String> {
        let mut elements = Vec::new();
        while let Some((event, line)) = self.event()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            elements.push(self.node(event, line, depth)?);
        }
        Ok(elements)
    }

    /// Reads the entries of a table, up to its end. A key that is not a scalar is read as an empty
    /// text.
    fn table(&mut self, depth: usize) -> Result<Vec<(String, Node)>, String> {
        let mut entries = Vec::new();
        let mut known = HashSet::new();
        while let Some((event, line)) = self.event()? {
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let key = match self.node(event, line, depth)?.value {
                Value::Text(key) if known.contains(&key) => {
                    return Err(format!("line {line}: '{}' is listed twice", shortened(&key)));
                }
                Value::Text(key) => {
                    known.insert(key.clone());
                    key
                }
                _ => String::new(),
            };
            let Some((event, line)) = self.event()? else { break };
            entries.push((key, self.node(event, line, depth)?));
        }
        Ok(entries)
    }
}

fn too_deep(line: usize) -> String {
    format!("line {line}: more than {DEEPEST} nested lists and tables")
}

/// Normalizes a plain scalar: the different spellings of null, `true`, `false`, and hexadecimal or
/// octal numbers are converted to one form (YAML 1.2.2 §10.3.2). Other scalars are unchanged.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> String {
    let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
    if style != ScalarStyle::Plain || is_text {
        return text.to_owned();
    }
    let of_base = |prefix: &str, base: u32| {
        text.strip_prefix(prefix).and_then(|digits| u64::from_str_radix(digits, base).ok())
    };
    match text {
        "~" | "null" | "Null" | "NULL" => String::new(),
        "true" | "True" | "TRUE" => "true".to_owned(),
        "false" | "False" | "FALSE" => "false".to_owned(),
        _ => match of_base("0x", 16).or_else(|| of_base("0o", 8)) {
            Some(number) => number.to_string(),
            None => text.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Node, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recursor.yml");
        std::fs::write(&file, text).unwrap();
        yaml(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn deep_nesting_is_rejected_before_a_stack_overflow() {
        let nested =
            |open: &str, count, close: &str| open.repeat(count) + "x" + &close.repeat(count);
        let aliases = (1..100).map(|n| format!("- &a{n} [*a{}]\n", n - 1));
        let of_keys = (1..100).map(|n| format!("- &a{n} {{? *a{} : x}}\n", n - 1));
        let cases = [
            nested("? ", 30_000, ""),
            nested("- ", 30_000, ""),
            nested("- ? ", 15_000, ""),
            nested("[", DEEPEST + 1, "]"),
            format!("- &a0 [x]\n{}", aliases.collect::<String>()),
            (0..=DEEPEST).map(|n| format!("{}a:\n", " ".repeat(n))).collect(),
        ];
        for text in cases {
            let error = of(&text).unwrap_err();
            assert!(error.contains("nested lists and tables"), "{}: {error}", shortened(&text));
        }
        assert!(of(&nested("[", DEEPEST, "]")).is_ok());
        // A key that is not a scalar becomes an empty key, so its nesting is dropped.
        assert!(of(&format!("- &a0 [x]\n{}", of_keys.collect::<String>())).is_ok());
    }

    #[test]
    fn expansion_of_anchors_and_aliases_is_bounded() {
        let scalar = format!("a: &x {}\nb: [{}]\n", "y".repeat(20_000), "*x, ".repeat(2_000));
        let many = format!("a: &x [{}]\nb: [{}]\n", "y, ".repeat(500), "*x, ".repeat(500));
        let opened: String = (0..50).map(|n| format!("&a{n} [")).collect();
        let anchors = format!("{opened}{}{}", "y, ".repeat(20_000), "]".repeat(50));
        for text in [scalar, many, anchors] {
            let error = of(&text).unwrap_err();
            assert!(error.contains("anchors and aliases expand"), "{}: {error}", shortened(&text));
        }
        assert!(of("a: &x [*x]\n").is_err(), "an alias within its anchor");
    }

    #[test]
    fn an_alias_has_its_value_and_its_line() {
        let root = of("a: &x [1, { b: c }]\nd: *x\ne: [*x, *x]\n").unwrap();
        assert_eq!(
            root.written(),
            "{ a: [1, { b: c }], d: [1, { b: c }], e: [[1, { b: c }], [1, { b: c }]] }"
        );
        let location = root.get("d").unwrap().location.to_string();
        assert!(location.ends_with(":2"), "{location}");
    }

    #[test]
    fn scalars_have_one_form_and_keys_are_there_once() {
        let root =
            of("a: TRUE\nb: ~\nc: 0x10\nd: 'True'\ne: !!str null\nf: 1.10\ng: ::1\nh:\n").unwrap();
        let values: Vec<String> = root.entries().iter().map(|(_, node)| node.written()).collect();
        assert_eq!(values, ["true", "", "16", "True", "null", "1.10", "::1", ""]);
        assert!(of("a: 1\nb: 2\na: 3\n").unwrap_err().contains("line 3"));
        assert!(of("# nothing\n").unwrap().entries().is_empty());
    }
}
