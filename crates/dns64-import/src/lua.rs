//! Statements of a kresd.conf (Lua) that can be evaluated without running Lua: calls and
//! assignments. An argument must be a literal, or a variable to which a single literal is assigned.
//!
//! ```text
//! net.listen('::1', 53, { kind = 'dns' })    cache.size = 100 * MB    modules = { 'dns64' }
//! local inside = policy.todnames({'corp.example'})
//! policy.add(policy.suffix(policy.STUB('192.0.2.1'), inside))
//! ```
//!
//! A call `dofile('FILE')` is replaced by the statements of that file. For a statement that cannot be evaluated, a note
//! is added to the draft of the dns64d configuration.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::error::ImportError;
use super::files::{self, MOST, called, folder_of, read, too_many};
use super::notes::Location;
use super::tree::{Node, Value};

/// A statement of a kresd.conf.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    /// A function call.
    Call(Node),
    /// An assignment to a setting of kresd.
    Set(String, Node),
    /// An assignment to a variable. The parser replaces each use of the variable by the value.
    Variable,
    /// A statement that cannot be parsed.
    Other(Location, String),
}

/// Maximum nesting depth of tables and calls.
const DEEPEST: usize = 16;
/// Maximum length of a statement that cannot be parsed, in octets.
const LONGEST: usize = 16 << 10;
/// Names of Lua and kresd constants. The parser treats such a name as a text value, and not as a variable.
const CONSTANTS: &[&str] =
    &["true", "false", "nil", "kB", "MB", "GB", "sec", "minute", "hour", "day"];
/// Settings of kresd without a dot in their names.
const SETTINGS: &[&str] = &["modules"];

/// Returns the statements of a file, in order.
///
/// # Errors
/// Returns an error if the file, or a file in a `dofile` call, cannot be read.
pub(super) fn parse(file: &Path) -> Result<Vec<Statement>, ImportError> {
    let mut reader = Reader { folder: folder_of(file), files: 0, statements: Vec::new() };
    reader.file(file, 0, &mut Variables::default())?;
    Ok(reader.statements)
}

struct Reader<'a> {
    /// Folder of the imported file, against which relative paths are resolved. Knot Resolver itself
    /// uses its working directory, which is not stated in the file.
    folder: &'a Path,
    /// Number of files included so far.
    files: usize,
    statements: Vec<Statement>,
}

impl Reader<'_> {
    fn file(
        &mut self,
        file: &Path,
        depth: usize,
        variables: &mut Variables,
    ) -> Result<(), ImportError> {
        let text = read(file)?;
        let mut cursor = Cursor { rest: &text, line: 1, name: called(file), variables };
        loop {
            cursor.skip();
            if cursor.rest.is_empty() {
                return Ok(());
            }
            let (rest, line) = (cursor.rest, cursor.line);
            let statement = cursor.statement().unwrap_or_else(|| {
                (cursor.rest, cursor.line) = (rest, line);
                let location = cursor.location();
                Statement::Other(location, cursor.take(statement_len(rest)).trim().to_owned())
            });
            let Some((location, named)) = included(&statement) else {
                self.statements.push(statement);
                continue;
            };
            self.files += 1;
            if depth >= files::DEEPEST || self.files > MOST {
                return Err(too_many(location));
            }
            let path = self.folder.join(named);
            self.file(&path, depth + 1, cursor.variables)
                .map_err(|error| error.of_include(location))?;
        }
    }
}

/// Returns the location and the file name of a `dofile('FILE')` statement, or `None` for any other statement.
fn included(statement: &Statement) -> Option<(&Location, &str)> {
    let Statement::Call(Node { location, value: Value::Call(name, arguments) }) = statement else {
        return None;
    };
    match &arguments[..] {
        [file] if name == "dofile" => Some((location, file.text()?)),
        _ => None,
    }
}

/// Values of Lua variables, shared by all files. The value is `None` if a variable is assigned more than once, because
/// the assignments may be parts of conditional statements.
type Variables = HashMap<String, Option<Node>>;

struct Cursor<'a> {
    rest: &'a str,
    line: usize,
    name: Arc<str>,
    variables: &'a mut Variables,
}

impl<'a> Cursor<'a> {
    fn location(&self) -> Location {
        Location::new(&self.name, self.line)
    }

    /// Returns the next `len` octets, and moves the cursor past them.
    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    /// Skips white space, `;` and comments.
    fn skip(&mut self) {
        loop {
            let blank = self.rest.len()
                - self.rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';').len();
            self.take(blank);
            let Some(comment) = self.rest.strip_prefix("--") else { return };
            let end = match comment.strip_prefix("[[") {
                Some(inside) => inside.find("]]").map_or(self.rest.len(), |end| end + 6),
                None => self.rest.find('\n').unwrap_or(self.rest.len()),
            };
            self.take(end);
        }
    }

    /// Consumes `text` and the blanks before it, if they are next in the input. Otherwise consumes
    /// nothing: the blanks may contain a newline that ends the statement.
    fn consume(&mut self, text: &str) -> bool {
        let before = (self.rest, self.line);
        self.skip();
        let is_next = self.rest.starts_with(text);
        if is_next {
            self.take(text.len());
        } else {
            (self.rest, self.line) = before;
        }
        is_next
    }

    /// Returns true if one more element of a list follows. Returns false if `close` ends the list; `close` is not
    /// consumed.
    fn has_next_element(&mut self, close: char) -> bool {
        if self.consume(",") {
            return true;
        }
        self.skip();
        self.rest.starts_with(close)
    }

    /// Consumes a name such as `net.listen` or `view:addr`.
    fn path(&mut self) -> Option<&'a str> {
        self.skip();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':');
        let len = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let is_name = self.rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        is_name.then(|| self.take(len))
    }

    fn statement(&mut self) -> Option<Statement> {
        self.skip();
        let location = self.location();
        let mut path = self.path()?;
        let is_local = path == "local";
        if is_local {
            path = self.path()?;
        }
        if !self.consume("=") {
            let arguments = self.arguments(0)?;
            let value = Value::Call(path.to_owned(), arguments);
            return self.ends().then_some(Statement::Call(Node { location, value }));
        }
        if !is_local && (path.contains(['.', ':']) || SETTINGS.contains(&path)) {
            let value = self.expression(0)?;
            return self.ends().then_some(Statement::Set(path.to_owned(), value));
        }
        let is_first = !self.variables.contains_key(path);
        let value = self.expression(0).filter(|_| self.ends());
        let is_read = value.is_some();
        self.variables.insert(path.to_owned(), value.filter(|_| is_first));
        is_read.then_some(Statement::Variable)
    }

    /// True at the end of a statement: before a newline, `;`, a comment, or the end of the text.
    fn ends(&self) -> bool {
        let rest = self.rest.trim_start_matches([' ', '\t', '\r']);
        rest.is_empty() || rest.starts_with(['\n', ';']) || rest.starts_with("--")
    }

    /// Parses the arguments of a call: `( … )`, or the single table or string that Lua accepts
    /// without parentheses.
    fn arguments(&mut self, depth: usize) -> Option<Vec<Node>> {
        if !self.consume("(") {
            self.skip();
            return match self.rest.chars().next() {
                Some('{' | '\'' | '"') => Some(vec![self.expression(depth)?]),
                _ => None,
            };
        }
        let mut arguments = Vec::new();
        while !self.consume(")") {
            arguments.push(self.expression(depth)?);
            if !self.has_next_element(')') {
                return None;
            }
        }
        Some(arguments)
    }

    /// Parses a literal, a table, a call, or a product of literals.
    fn expression(&mut self, depth: usize) -> Option<Node> {
        if depth >= DEEPEST {
            return None;
        }
        let first = self.operand(depth)?;
        if !self.consume("*") {
            return Some(first);
        }
        let second = self.operand(depth)?;
        let text = format!("{} * {}", first.text()?, second.text()?);
        Some(Node { location: first.location, value: Value::Text(text) })
    }

    fn operand(&mut self, depth: usize) -> Option<Node> {
        self.skip();
        let location = self.location();
        let next = self.rest.chars().next()?;
        let value = match next {
            '\'' | '"' => {
                let end = self.rest[1..].find(next)?;
                let text = self.take(end + 2);
                // Strings with escape sequences are not supported, because no setting needs them.
                let inside = &text[1..=end];
                (!inside.contains('\\')).then(|| Value::Text(inside.to_owned()))?
            }
            '{' => self.table(depth)?,
            '0'..='9' | '-' => {
                let ends = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
                let len = self.rest.find(ends).unwrap_or(self.rest.len());
                Value::Text(self.take(len).to_owned())
            }
            _ => {
                let path = self.path()?.to_owned();
                // The file of a `dofile` within an expression is not read, so the statement is
                // treated as one that cannot be parsed.
                if path == "dofile" {
                    return None;
                }
                if self.rest.starts_with(['(', '{', '\'', '"']) {
                    Value::Call(path, self.arguments(depth + 1)?)
                } else if let Some(Some(node)) = self.variables.get(&path) {
                    node.value.clone()
                } else if CONSTANTS.contains(&path.as_str()) {
                    Value::Text(path)
                } else {
                    Value::Name(path)
                }
            }
        };
        Some(Node { location, value })
    }

    /// Parses a table: a list of values, or keys with values.
    fn table(&mut self, depth: usize) -> Option<Value> {
        self.consume("{");
        let (mut list, mut entries) = (Vec::new(), Vec::new());
        while !self.consume("}") {
            let before = (self.rest, self.line);
            let key = self.path().map(str::to_owned);
            match key {
                Some(key) if self.consume("=") => entries.push((key, self.expression(depth + 1)?)),
                _ => {
                    (self.rest, self.line) = before;
                    list.push(self.expression(depth + 1)?);
                }
            }
            if !self.has_next_element('}') {
                return None;
            }
        }
        if entries.is_empty() && !list.is_empty() {
            return Some(Value::List(list));
        }
        // In a table that also has keys, elements without a key get an empty key.
        entries.extend(list.into_iter().map(|element| (String::new(), element)));
        Some(Value::Table(entries))
    }
}

/// Returns the length, in octets, of a statement that cannot be parsed. The statement ends with its line, unless a
/// bracket is open at the end of the line, or the operator `..` continues the statement. If a bracket or a string is
/// never closed, the statement is only the first line.
fn statement_len(text: &str) -> usize {
    let line = text.find('\n').unwrap_or(text.len());
    let (mut at, mut depth) = (0, 0_usize);
    // End of the last token that is neither a comment nor white space.
    let mut written = 0;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        let is_continued = || {
            let before = text[..written].trim_end();
            let is_open = before.ends_with("..") && !before.ends_with("...");
            is_open || rest.trim_start().starts_with("..")
        };
        match next {
            '\n' if depth == 0 && !is_continued() => return at,
            '(' | '{' => depth += 1,
            ')' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match token_len(rest) {
            Some(len) if at + len <= LONGEST => {
                at += len;
                if !rest.starts_with("--") && !next.is_whitespace() {
                    written = at;
                }
            }
            _ => return line,
        }
    }
    if depth == 0 { at } else { line }
}

/// Returns the length, in octets, of the string, comment or character at the start of a text. Returns `None` if a
/// string or comment is not closed.
fn token_len(text: &str) -> Option<usize> {
    let long = || Some(text.find("]]")? + 2);
    let first = text.chars().next()?;
    match first {
        '-' if text.starts_with("--[[") => long(),
        '-' if text.starts_with("--") => Some(text.find('\n').unwrap_or(text.len())),
        '[' if text.starts_with("[[") => long(),
        '\'' | '"' => {
            let mut inside = text.char_indices().skip(1);
            while let Some((at, c)) = inside.next() {
                match c {
                    '\\' => {
                        inside.next();
                    }
                    '\n' => return None,
                    _ if c == first => return Some(at + 1),
                    _ => {}
                }
            }
            None
        }
        _ => Some(first.len_utf8()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kresd.conf");
        std::fs::write(&file, text).unwrap();
        let written = |statement: &Statement| match statement {
            Statement::Call(node) => node.written(),
            Statement::Set(path, node) => format!("{path} = {}", node.written()),
            Statement::Variable => "variable".to_owned(),
            Statement::Other(_, text) => format!("? {text}"),
        };
        parse(&file).unwrap().iter().map(written).collect()
    }

    #[test]
    fn calls_and_assignments_of_literals_are_parsed() {
        let text = "-- comment\n--[[ more\nof it ]]\nnet.listen('::1', 53, { kind = 'dns', freebind = true })\n\
            modules = {\n\t'hints > iterate', -- one\n\t'dns64',\n}\ncache.size = 100 * MB\n\
            policy.add(policy.all(policy.FORWARD({'192.0.2.1', \"192.0.2.2@5353\"})))\n\
            modules.load 'stats'\nlocal x = 1\nif x then\nprint('x' .. y)\nlog_level('info') log_level('debug')\n";
        assert_eq!(
            statements(text),
            [
                "net.listen(::1, 53, { kind: dns, freebind: true })",
                "modules = [hints > iterate, dns64]",
                "cache.size = 100 * MB",
                "policy.add(policy.all(policy.FORWARD([192.0.2.1, 192.0.2.2@5353])))",
                "modules.load(stats)",
                "variable",
                "? if x then",
                "? print('x' .. y)",
                "? log_level('info') log_level('debug')",
            ]
        );
    }

    #[test]
    fn variables_have_the_literal_that_was_assigned_once() {
        let text = "local ours = {'corp.example'}\nlist = policy.todnames(ours)\nf(list, other, config.list)\n\
            twice = 1\nif x then\ntwice = 2\nend\nf(twice)\nlocal made = g() .. 'x'\nf(made, true, later)\nlater = 1\n";
        assert_eq!(
            statements(text),
            [
                "variable",
                "variable",
                "f(policy.todnames([corp.example]), other, config.list)",
                "variable",
                "? if x then",
                "variable",
                "? end",
                "f(twice)",
                "? local made = g() .. 'x'",
                "f(made, true, later)",
                "variable",
            ]
        );
    }

    #[test]
    fn statements_on_several_lines_are_one_each() {
        let print = "print('one (' ..\n  x, -- it's\n  [[two\n')']] .. \"\\\"\", { f()\n}\n)";
        let text =
            format!("{print}\nlocal y = x ..\n'z'\n.. 'w'\nlocal z = 'it''s'\nf(1)\nif (x\ng(2)\n");
        let printed = format!("? {print}");
        assert_eq!(
            statements(&text),
            [
                printed.as_str(),
                "? local y = x ..\n'z'\n.. 'w'",
                "? local z = 'it''s'",
                "f(1)",
                "? if (x",
                "g(2)",
            ]
        );
    }

    #[test]
    fn comments_and_varargs_do_not_continue_statements() {
        let text = "if x then -- only here..\nf(1)\nlocal a = ...\ng(2)\nlocal b = y .. -- more\n'z'\nh(3)\n";
        let found = statements(text);
        assert!(["f(1)", "g(2)", "h(3)"].iter().all(|call| found.iter().any(|one| one == call)));
        assert!(found.iter().any(|one| one.ends_with("'z'")), "{found:?}");
    }

    #[test]
    fn unterminated_statements_are_skipped() {
        assert_eq!(statements("net.listen('::1"), ["? net.listen('::1"]);
        assert_eq!(statements("a = {{{{{{{{{{{{{{{{{{{1}}}}}}}}}}}}}}}}}}}").len(), 1);
        assert_eq!(statements("x(1"), ["? x(1"]);
    }
}
