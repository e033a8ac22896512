// SPDX-License-Identifier: Apache-2.0
//! The code blocks of the documentation, for tests.
//!
//! Each block says in its info string how it is checked ([`Kind`]): commands run in a test bed or at
//! least parse, files parse. The tests of each program ask for its commands ([`commands`]) and files
//! ([`files`]); `tests/smoke` runs the blocks of commands.

mod shell;

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use shell::Script;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Programs whose commands parse in the tests of their crates.
pub const PROGRAMS: [&str; 5] =
    ["linkctl", "linkd", "linkd-dataplane", "linkd-group", "linkd-p4switch"];
/// Kinds of TOML files that tests parse. `part` is a direction of a profile, or some of its keys.
pub const FILES: [&str; 6] = ["profile", "part", "scenario", "clients", "box", "group"];
/// Tests that run blocks in a bed of their own.
pub const TESTS: [&str; 2] = ["tutorial", "image"];
/// Languages without commands and files of linkemu. `text` is output, a diagram or a filter.
const OTHERS: [&str; 3] = ["text", "python", "yaml"];

/// A fenced block of a page.
#[derive(Clone, Debug)]
pub struct Block {
    /// Path of the page, relative to the root of the repository.
    pub page: String,
    /// Line of the opening fence, from 1.
    pub line: usize,
    pub info: String,
    pub text: String,
}

/// How a block is checked, from its info string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `sh`: runs in the common test bed of the pages. `exit=N`: its last command ends so.
    Run { exit: i32 },
    /// `sh test=NAME`: runs in the bed of this test.
    Test(String),
    /// `sh skip="REASON"`: parses only.
    Skip(String),
    /// `toml KIND`: parses. With `file=NAME` the blocks of the page find it under this name.
    File { kind: String, name: Option<String> },
    /// Neither commands nor files of linkemu.
    Other,
}

/// A command of a page, the name of the program first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Command {
    /// Page and line of the block.
    pub place: String,
    pub words: Vec<String>,
}

/// A file that a page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    /// Page and line of the block.
    pub place: String,
    pub text: String,
}

impl Block {
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    /// # Errors
    /// What is wrong with the info string, and what to write.
    pub fn kind(&self) -> Result<Kind, String> {
        let wrong = |what: &str| {
            let all = "write ```sh for commands that a test runs, ```sh skip=\"REASON\" for commands \
                       that none can run, ```toml KIND for a file, or ```text for output";
            Err(format!("{}: ```{}: {what}: {all}", self.place(), self.info))
        };
        let words = shlex::split(&self.info).unwrap_or_default();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(match words.as_slice() {
            ["sh"] => Kind::Run { exit: 0 },
            ["sh", option] => match option.split_once('=') {
                Some(("test", name)) if TESTS.contains(&name) => Kind::Test(name.into()),
                Some(("skip", reason)) if !reason.is_empty() => Kind::Skip(reason.into()),
                Some(("exit", code)) => match code.parse() {
                    Ok(exit) => Kind::Run { exit },
                    Err(_) => return wrong("exit= takes a number"),
                },
                _ => return wrong("unknown option"),
            },
            ["toml", kind, rest @ ..] if FILES.contains(kind) => {
                let kind = (*kind).to_owned();
                match rest {
                    [] => Kind::File { kind, name: None },
                    [option] => match option.strip_prefix("file=") {
                        Some(name) => Kind::File { kind, name: Some(name.into()) },
                        None => return wrong("unknown option"),
                    },
                    _ => return wrong("too many words"),
                }
            }
            ["toml", ..] => return wrong(&format!("KIND is one of {}", FILES.join(", "))),
            [other] if OTHERS.contains(other) => Kind::Other,
            [] => return wrong("no language"),
            _ => return wrong("unknown language or option"),
        })
    }

    fn script(&self) -> Script {
        match self.info.split(' ').next() {
            Some("sh") => Script::of(&self.text),
            Some("yaml") => Script::of_yaml(&self.text),
            _ => Script::default(),
        }
    }
}

/// The README, the pages of `docs/` and those beside other parts. Decision records and the changelog
/// are history and not checked.
///
/// # Panics
/// If they cannot be read.
#[must_use]
#[allow(clippy::expect_used, reason = "for tests only")]
pub fn pages() -> Vec<String> {
    let root = Path::new(ROOT);
    let mut found: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "control/python/README.md"].map(|p| root.join(p)).into();
    let inside = |folder: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(root.join(folder)).expect("the folder is in the repository");
        entries.map(|entry| entry.expect("the folder can be read").path()).collect()
    };
    found.extend(
        inside("docs").into_iter().filter(|path| path.extension().is_some_and(|e| e == "md")),
    );
    let boxes = inside("hw-configs").into_iter().map(|folder| folder.join("README.md"));
    found.extend(boxes.filter(|path| path.is_file()));
    let relative = |path: PathBuf| path.strip_prefix(root).map(|path| path.display().to_string());
    let mut pages: Vec<String> = found.into_iter().filter_map(|path| relative(path).ok()).collect();
    pages.sort();
    pages
}

/// All fenced blocks, page by page in order.
///
/// # Panics
/// If a page cannot be read.
#[must_use]
#[allow(clippy::expect_used, reason = "for tests only")]
pub fn blocks() -> Vec<Block> {
    let read = |page: &String| {
        let text = fs::read_to_string(Path::new(ROOT).join(page)).expect("the page is UTF-8");
        blocks_of(page, &text)
    };
    pages().iter().flat_map(read).collect()
}

fn blocks_of(page: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Block, usize)> = None;
    for (n, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(info)) => {
                let (page, info) = (page.to_owned(), info.trim().to_owned());
                open = Some((Block { page, line: n + 1, info, text: String::new() }, indent));
            }
            (None, None) => {}
            (Some(_), Some("")) => blocks.extend(open.take().map(|(block, _)| block)),
            (Some((block, indent)), _) => {
                block.text += line.get(*indent..).unwrap_or_default();
                block.text.push('\n');
            }
        }
    }
    blocks
}

/// Parses all commands of a program in blocks that no test runs.
///
/// # Panics
/// With the place of the first command that does not parse, or if there are fewer than `least`.
#[allow(clippy::panic, reason = "for tests")]
pub fn commands_parse<T, E: Display>(
    program: &str,
    least: usize,
    parse: impl Fn(&[String]) -> Result<T, E>,
) {
    let commands = commands(program);
    assert!(commands.len() >= least, "only {} commands of {program}", commands.len());
    for Command { place, words } in commands {
        if let Err(error) = parse(&words) {
            panic!("{place}: {}: {error}", words.join(" "));
        }
    }
}

/// Parses all files of a kind: blocks, and files that commands write.
///
/// # Panics
/// With the place of the first file that does not parse, or if there is none.
#[allow(clippy::panic, reason = "for tests")]
pub fn files_parse<T, E: Display>(kind: &str, parse: impl Fn(&str) -> Result<T, E>) {
    let files = files(kind);
    assert!(!files.is_empty(), "no page shows a file of the kind {kind}");
    for File { place, text } in files {
        if let Err(error) = parse(&text) {
            panic!("{place}: {error}");
        }
    }
}

fn commands(program: &str) -> Vec<Command> {
    let runs = |block: &Block| matches!(block.kind(), Ok(Kind::Run { .. } | Kind::Test(_)));
    let of = |block: Block| {
        let place = block.place();
        let words = block.script().commands(program);
        words.into_iter().map(move |words| Command { place: place.clone(), words })
    };
    blocks().into_iter().filter(|block| !runs(block)).flat_map(of).collect()
}

fn files(kind: &str) -> Vec<File> {
    let mut files = Vec::new();
    for block in blocks() {
        let place = block.place();
        let name = format!("{kind}.toml");
        let written = block.script().files.into_iter().filter(|(path, _)| path.ends_with(&name));
        let file = |(_, text)| File { place: place.clone(), text };
        files.extend(written.map(file));
        if matches!(block.kind(), Ok(Kind::File { kind: of, .. }) if of == kind) {
            files.push(File { place, text: block.text });
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_says_how_it_is_checked() {
        let blocks = blocks();
        assert!(blocks.len() > 100, "only {} blocks are found", blocks.len());
        let faults: Vec<String> = blocks.iter().filter_map(|block| block.kind().err()).collect();
        assert!(faults.is_empty(), "{} blocks:\n{}", faults.len(), faults.join("\n"));
    }

    #[test]
    fn output_has_no_commands() {
        let hidden = |block: &Block| {
            let begins = |line: &str| PROGRAMS.iter().any(|p| line.starts_with(&format!("{p} ")));
            block.info == "text" && block.text.lines().any(begins)
        };
        let hidden: Vec<String> = blocks().iter().filter(|b| hidden(b)).map(Block::place).collect();
        assert!(hidden.is_empty(), "write ```sh for the commands of {}", hidden.join(", "));
    }

    #[test]
    fn block_without_known_info_is_refused() {
        let of = |info: &str| {
            let page = format!("text\n\n```{info}\nlinkctl show\n```\n");
            let [block] = blocks_of("p.md", &page).try_into().unwrap();
            assert_eq!((block.place().as_str(), block.text.as_str()), ("p.md:3", "linkctl show\n"));
            block.kind()
        };
        assert_eq!(of("sh"), Ok(Kind::Run { exit: 0 }));
        assert_eq!(of("sh exit=4"), Ok(Kind::Run { exit: 4 }));
        assert_eq!(of("sh test=image"), Ok(Kind::Test("image".into())));
        assert_eq!(of("sh skip=\"needs a NIC\""), Ok(Kind::Skip("needs a NIC".into())));
        let file = |name: Option<&str>| {
            Ok(Kind::File { kind: "profile".into(), name: name.map(str::to_owned) })
        };
        assert_eq!(of("toml profile"), file(None));
        assert_eq!(of("toml profile file=train.toml"), file(Some("train.toml")));
        assert_eq!(of("text"), Ok(Kind::Other));
        for wrong in
            ["", "bash", "sh skip=", "sh test=none", "sh run", "toml", "toml file", "text x"]
        {
            let told = of(wrong).unwrap_err();
            assert!(told.starts_with(&format!("p.md:3: ```{wrong}: ")), "{told}");
        }
    }
}
