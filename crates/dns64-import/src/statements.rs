//! Syntax of named.conf and of a Corefile: words, and blocks in braces. Statements end with `;` in
//! named.conf, and with a newline in a Corefile.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::ImportError;
use super::files::{DEEPEST, MOST, called, changed_directory, folder_of, included, read, too_many};
use super::notes::Location;

/// A statement: its words, and its block if it has one.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub location: Location,
    pub words: Vec<String>,
    pub block: Option<Vec<Statement>>,
}

impl Statement {
    /// Returns the first word of the statement.
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Returns the second word of the statement.
    pub(super) fn argument(&self) -> Option<&str> {
        self.words.get(1).map(String::as_str)
    }

    /// Returns the word that follows the word `key` in the statement.
    pub(super) fn after(&self, key: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == key)?;
        self.words.get(at + 1).map(String::as_str)
    }

    /// Returns the statements in the block of this statement, or an empty slice if it has no block.
    pub(super) fn body(&self) -> &[Statement] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Returns the text of the statement on one line.
    pub(super) fn written(&self) -> String {
        let mut text = self.words.join(" ");
        if let Some(block) = &self.block {
            let inside: Vec<String> = block.iter().map(Statement::written).collect();
            text += &format!(" {{ {} }}", inside.join("; "));
        }
        text.trim_start().to_owned()
    }
}

/// Syntax of one of the two file formats. It determines the end of a statement and the form of comments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// named.conf: a statement ends with `;`. Comments begin with `#` or `//`, or are enclosed in
    /// `/* */`.
    Semicolons,
    /// Corefile: a statement is one line. Comments begin with `#`.
    Lines,
}

impl Style {
    /// True if a brace begins or ends a block, given the text `after` that follows the brace.
    fn is_brace(self, after: &str) -> bool {
        self == Style::Semicolons || after.is_empty() || after.starts_with(char::is_whitespace)
    }

    /// Returns the keyword of statements that include a file.
    fn include(self) -> &'static str {
        match self {
            Style::Semicolons => "include",
            Style::Lines => "import",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Open,
    Close,
    End,
}

/// Returns the statements of a file. An `include` statement is replaced by the statements of the included files.
///
/// # Errors
/// Returns an error if a file cannot be read, or if braces or quotes do not match.
pub(super) fn parse(file: &Path, style: Style) -> Result<Vec<Statement>, ImportError> {
    let directory = folder_of(file).to_owned();
    Parser { style, files: 0, directory, snippets: HashSet::new() }.file(file, 0)
}

struct Parser {
    style: Style,
    /// Number of files included so far.
    files: usize,
    /// Working directory of BIND, against which relative paths are resolved. The option `directory`
    /// changes it for the following lines. BIND's initial working directory is not stated in the
    /// file, so the folder of the imported file is used instead.
    directory: PathBuf,
    /// Names of the snippets in a Corefile.
    snippets: HashSet<String>,
}

impl Parser {
    fn file(&mut self, file: &Path, depth: usize) -> Result<Vec<Statement>, ImportError> {
        let (style, name) = (self.style, called(file));
        let mut tokens = Tokens { all: tokens(&read(file)?, &name, style)?, at: 0, name };
        let statements = block(&mut tokens, 0)?;
        if let Some((_, line)) = tokens.peek() {
            return Err(bad(&tokens.name, *line, "an unmatched '}'"));
        }
        let snippet = |name: &str| Some(name.strip_prefix('(')?.strip_suffix(')')?.to_owned());
        self.snippets.extend(statements.iter().filter_map(|statement| snippet(statement.name())));
        self.spliced(statements, file, depth)
    }

    /// Replaces each include statement with the statements of the included files.
    fn spliced(
        &mut self,
        statements: Vec<Statement>,
        file: &Path,
        depth: usize,
    ) -> Result<Vec<Statement>, ImportError> {
        let style = self.style;
        let mut all = Vec::with_capacity(statements.len());
        for mut statement in statements {
            let named = statement.argument().filter(|_| statement.block.is_none());
            match (style, statement.name(), named) {
                // If a snippet has this name, `import` refers to the snippet and not to a file.
                (_, name, Some(named))
                    if name == style.include() && !self.snippets.contains(named) =>
                {
                    all.extend(self.included(named, &statement.location, file, depth)?);
                    continue;
                }
                (Style::Semicolons, "directory", Some(named)) => {
                    self.directory = changed_directory(&self.directory, named);
                }
                _ => (),
            }
            if let Some(block) = statement.block.take() {
                statement.block = Some(self.spliced(block, file, depth)?);
            }
            all.push(statement);
        }
        Ok(all)
    }

    /// Returns the statements of the included files. `named` is the path or pattern in an include
    /// statement, and `file` contains this statement. A pattern that matches no file is an error in
    /// BIND, but not in CoreDNS.
    fn included(
        &mut self,
        named: &str,
        location: &Location,
        file: &Path,
        depth: usize,
    ) -> Result<Vec<Statement>, ImportError> {
        let folder = match self.style {
            Style::Semicolons => &self.directory,
            Style::Lines => folder_of(file),
        };
        let paths = included(folder, named);
        if paths.is_empty() && self.style == Style::Semicolons {
            let source = io::Error::new(io::ErrorKind::NotFound, "no file matches this pattern");
            let file = folder.join(named);
            return Err(ImportError::Include { location: location.clone(), file, source });
        }
        let mut all = Vec::new();
        for path in paths {
            self.files += 1;
            if depth >= DEEPEST || self.files > MOST {
                return Err(too_many(location));
            }
            all.extend(self.file(&path, depth + 1).map_err(|error| error.of_include(location))?);
        }
        Ok(all)
    }
}

struct Tokens {
    /// Tokens, each with its line number.
    all: Vec<(Token, usize)>,
    at: usize,
    name: Arc<str>,
}

impl Tokens {
    fn peek(&self) -> Option<&(Token, usize)> {
        self.all.get(self.at)
    }

    fn next(&mut self) -> Option<(Token, usize)> {
        self.at += 1;
        self.all.get(self.at - 1).cloned()
    }
}

/// Parses statements up to the end of the block; the closing `}` is not consumed.
fn block(tokens: &mut Tokens, depth: usize) -> Result<Vec<Statement>, ImportError> {
    let mut statements = Vec::new();
    let mut open: Option<Statement> = None;
    while let Some((token, line)) = tokens.peek().cloned() {
        let location = Location::new(&tokens.name, line);
        let fresh = || Statement { location, words: Vec::new(), block: None };
        match token {
            Token::Close => break,
            Token::End => statements.extend(open.take()),
            Token::Word(word) => open.get_or_insert_with(fresh).words.push(word),
            Token::Open => {
                if depth >= DEEPEST {
                    return Err(bad(&tokens.name, line, "blocks are nested too deeply"));
                }
                tokens.next();
                let inside = block(tokens, depth + 1)?;
                let statement = open.get_or_insert_with(fresh);
                // If a statement has several blocks, the first one is used. Only statements about
                // control channels have several blocks.
                statement.block.get_or_insert(inside);
                if !matches!(tokens.peek(), Some((Token::Close, _))) {
                    return Err(bad(&tokens.name, line, "an unmatched '{'"));
                }
            }
        }
        tokens.next();
    }
    statements.extend(open);
    Ok(statements)
}

fn bad(name: &Arc<str>, line: usize, reason: &str) -> ImportError {
    ImportError::Syntax { location: Location::new(name, line), reason: reason.to_owned() }
}

/// Splits a text into tokens, and removes comments. `!` is a separate token in named.conf.
fn tokens(text: &str, name: &Arc<str>, style: Style) -> Result<Vec<(Token, usize)>, ImportError> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let comment = comment(rest, style);
        if let Some(comment) = comment {
            line += comment.matches('\n').count();
            rest = &rest[comment.len()..];
            continue;
        }
        let (token, taken) = match c {
            '\n' if style == Style::Lines => (Some(Token::End), 1),
            _ if c.is_whitespace() => (None, c.len_utf8()),
            '{' if style.is_brace(after) => (Some(Token::Open), 1),
            '}' if style.is_brace(after) => (Some(Token::Close), 1),
            ';' if style == Style::Semicolons => (Some(Token::End), 1),
            '!' if style == Style::Semicolons => (Some(Token::Word("!".into())), 1),
            '"' => {
                let Some(len) = after.find('"') else {
                    return Err(bad(name, line, "an unmatched '\"'"));
                };
                (Some(Token::Word(after[..len].to_owned())), len + 2)
            }
            _ => {
                // In a Corefile, braces may be part of a word, as in `{$NAME}`.
                let ends = |c: char| {
                    c.is_whitespace()
                        || c == '"'
                        || (style == Style::Semicolons && matches!(c, '{' | '}' | ';'))
                };
                let len = rest.find(ends).unwrap_or(rest.len());
                (Some(Token::Word(rest[..len].to_owned())), len)
            }
        };
        tokens.extend(token.map(|token| (token, line)));
        line += rest[..taken].matches('\n').count();
        rest = &rest[taken..];
    }
    Ok(tokens)
}

/// Returns the comment at the start of a text, if there is one. A line comment does not include its
/// newline.
fn comment(text: &str, style: Style) -> Option<&str> {
    let of_line = || &text[..text.find('\n').unwrap_or(text.len())];
    if text.starts_with('#') || (style == Style::Semicolons && text.starts_with("//")) {
        return Some(of_line());
    }
    if style == Style::Semicolons && text.starts_with("/*") {
        return Some(&text[..text.find("*/").map_or(text.len(), |end| end + 2)]);
    }
    None
}
